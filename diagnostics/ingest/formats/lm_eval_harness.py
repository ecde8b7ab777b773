"""lm-evaluation-harness: ``samples_{task}_{date}.jsonl``, written by ``--log_samples``.

The files are in ``{output_path}/{model}/``. Each row has a problem, one *filter* (answer extraction), and in ``resps``
all responses before filtering. The row of each filter repeats the responses, which are read only once.

A problem with a single response has a score under each filter. The response is correct if any filter accepts it. A
single filter would count a change of answer style as a loss: ``strict-match`` only accepts ``#### 4``. The score is the
first metric of a row. ``--reward METRIC`` chooses another metric, ``--reward METRIC,FILTER`` one filter.

With ``repeats`` above 1, a metric covers all responses together. So samples have no scores, and we grade them by
``target``. We compare these grades with the metric under the first filter. If that filter keeps one extracted text, the
metric covers only the first response. Otherwise it covers every response that the filter keeps.

Tasks that compare likelihoods generate no text and are not imported. The step is in the model's name:
``…__checkpoint-40``.

Source: lm-evaluation-harness 0.4.13, ``evaluate`` and ``EvaluationTracker.save_results_samples``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from oversharp.diagnostics.ingest.formats.contract import (
    Fault,
    FilePlace,
    Importer,
    ReadOptions,
    Recorded,
    ScoreTable,
    ToolScore,
    gather_scores,
    has_fields,
)
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    finite,
    get_number,
    get_optional_text,
    get_sampling_settings,
    get_whole,
    join_chat,
)
from oversharp.diagnostics.ingest.formats.rows import first_record, read_each, records, typed_records
from oversharp.diagnostics.records.errors import ImportFileError
from oversharp.diagnostics.series.folders import run_and_step
from oversharp.diagnostics.verifiers.extraction import hash_answer
from oversharp.diagnostics.verifiers.reading.golds import any_of

_FILE = re.compile(r"samples_(.+)_\d{4}-\d\d-\d\dT[\d.-]+\.jsonl")
#: Metric names that are a pass@k estimate, with k if the name contains it.
_PASS = re.compile(r"pass(?:@|_at_)(\d+)?")
#: Output of a filter that matched nothing.
_NO_MATCH = "[invalid]"
#: The harness's names of the token limit, in order of priority.
_MAX_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


def place(path: Path) -> FilePlace:
    """Return run and step from the model folder's name (``__`` is a slash), and the task in the file name."""
    run, step = run_and_step(path.absolute().parent.name.replace("__", "/"))
    named = _FILE.fullmatch(path.name)
    return FilePlace(run=run or None, step=step, task=named[1] if named else None)


def settings(path: Path) -> dict[str, float | int]:
    """Return the sampling settings of the first row."""
    try:
        [(_, _, generation), *_] = _requests(first_record(path))
    except BadField:
        return {}
    longest = next((name for name in _MAX_TOKENS if generation.get(name) is not None), _MAX_TOKENS[0])
    sampling = get_sampling_settings(generation, max_tokens=longest)
    return {**sampling, "temperature": 0.0} if _is_greedy(generation) else sampling


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per response.

    Raises ``ImportFileError`` if no row has the filter in ``options``.
    """
    metric, _, chosen_filter = (options.reward or "").partition(",")
    filters = _filters(path)
    if chosen_filter and filters and chosen_filter not in filters:
        names = ", ".join(sorted(filters))
        raise ImportFileError(f"{path}: no filter {chosen_filter!r} for --reward; use one of: {names}")
    best = _best_scores(path, metric) if len(filters) > 1 and not chosen_filter else {}
    seen: set[int] = set()

    def samples_of(line: int, fields: Mapping[str, Any]) -> Iterator[Recorded]:
        row_filter = _filter(fields)
        if chosen_filter and row_filter != chosen_filter:
            return
        doc_id = _doc_id(fields)
        if doc_id not in seen:
            is_scored = doc_id in best or row_filter == (chosen_filter or filters[0])
            yield from _samples(line, fields, doc_id, best.get(doc_id, fields), metric if is_scored else None)
            seen.add(doc_id)

    yield from read_each(path, samples_of)


class _FilterOnly(Struct):
    """Only the filter of a row, so that msgspec skips the other fields."""

    filter: str


def _filters(path: Path) -> list[str]:
    """Return the filters of the rows in file order."""
    filters: dict[str, None] = {}
    for record in typed_records(path, _FilterOnly):
        if not isinstance(record, Fault):
            fields = record[1]
            filters[fields.filter if isinstance(fields, _FilterOnly) else _filter(fields)] = None
    return list(filters)


def _filter(fields: Mapping[str, Any]) -> str:
    return str(fields.get("filter"))


def _doc_id(fields: Mapping[str, Any]) -> int:
    doc_id = get_whole(fields, "doc_id")
    if doc_id is None:
        raise BadField("no doc_id")
    return doc_id


def _scored_rows(path: Path, metric: str) -> Iterator[tuple[int, Mapping[str, Any], float]]:
    """Yield problem number, fields and score of each row that has a single response and a score."""
    for record in records(path):
        if isinstance(record, Fault):
            continue
        fields = record[1]
        try:
            requests = _requests(fields)
            score = _reward(fields, metric) if len(requests) == len(requests[0][1]) == 1 else None
            if score is not None:
                yield _doc_id(fields), fields, score
        except BadField:  # a bad row, or a filter without this metric
            continue


def _best_scores(path: Path, metric: str) -> dict[int, Mapping[str, Any]]:
    """Return for each problem the fields that ``_samples`` needs, from its first best-scored row."""
    best: dict[int, tuple[float, Mapping[str, Any]]] = {}
    for doc_id, fields, score in _scored_rows(path, metric):
        if doc_id not in best or score > best[doc_id][0]:
            name = metric or _first_metric(fields) or ""
            kept = {"metrics": [name], name: score, "filtered_resps": fields.get("filtered_resps")}
            best[doc_id] = score, kept
    return {doc_id: kept for doc_id, (_, kept) in best.items()}


def score_table(path: Path, options: ReadOptions) -> ScoreTable | None:
    """Return all scores by filter; None with one filter, or if ``options`` chooses a filter."""
    metric, _, chosen_filter = (options.reward or "").partition(",")
    if chosen_filter or len(_filters(path)) < 2:
        return None
    names: dict[str, None] = {}

    def rows() -> Iterator[tuple[str, Mapping[str, float]]]:
        for doc_id, fields, score in _scored_rows(path, metric):
            names[metric or _first_metric(fields) or "METRIC"] = None
            yield str(doc_id), {_filter(fields): score}

    table = gather_scores(rows(), taken="correct if any of them accepts it", flag="")
    return table and replace(table, flag=f"--reward {next(iter(names))},FILTER")


def _gold(target: object) -> str | None:
    """Return the gold answer, or a gold that accepts any of several.

    A worked solution (GSM8K) becomes its final answer.
    """
    golds = [
        hash_answer(gold) or gold
        for answer in (target if isinstance(target, list) else [target])
        if (gold := get_optional_text({"target": answer}, "target"))
    ]
    return any_of(golds) if golds else None


def _samples(
    line: int, fields: Mapping[str, Any], doc_id: int, scored: Mapping[str, Any], metric: str | None
) -> Iterator[Recorded]:
    """Yield all responses of a row.

    ``scored`` is the metric of the reward: "" is the first metric, None is no reward.
    """
    requests = _requests(fields)
    gold = _gold(fields.get("target"))
    alone = len(requests) == len(requests[0][1]) == 1
    value = _reward(scored, metric) if alone and metric is not None else None
    claim = _claim(fields, metric, requests[0][1]) if len(requests) == 1 and not alone and metric is not None else None
    for number, (prompt, texts, generation) in enumerate(requests):
        if None in texts and value is None and claim is None:
            raise BadField("a response that is null")
        for index, response in enumerate(texts):
            yield Recorded(
                line=line,
                prompt=prompt,
                response=response or "",  # a null response is empty, as the metric treats it
                gold=gold,
                reward=value,
                problem=str(doc_id) if len(requests) == 1 else f"{doc_id}.{number}",
                index=index,
                answer=None if value is None else _filtered(scored, response),
                greedy=_is_greedy(generation),
                claim=None if index else claim,
            )


def _requests(fields: Mapping[str, Any]) -> list[tuple[str, list[str | None], Mapping[str, Any]]]:
    """Return prompt, responses and generation settings of each request that generated text; at least one."""
    groups, arguments = fields.get("resps"), fields.get("arguments")
    if not isinstance(groups, list) or not isinstance(arguments, Mapping):
        raise BadField("resps or arguments are missing or of another type")
    requests = []
    for number, texts in enumerate(groups):
        if not isinstance(texts, list) or not texts or not all(text is None or isinstance(text, str) for text in texts):
            continue  # likelihoods
        request = arguments.get(f"gen_args_{number}")
        if not isinstance(request, Mapping):
            raise BadField("arguments lack gen_args of a response")
        generation = request.get("arg_1")
        requests.append((_prompt(request.get("arg_0")), texts, generation if isinstance(generation, Mapping) else {}))
    if not requests:
        raise BadField("generates no text; tasks that compare likelihoods cannot be imported")
    return requests


def _prompt(value: object) -> str:
    """Return the prompt. For a chat API it is stored as a list with one text, the messages as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        try:
            messages = msgspec.json.decode(value[0])
        except (ValueError, RecursionError):
            messages = None
        if isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages):
            return join_chat(messages, "the prompt")
    raise BadField("the prompt is not text")


def _is_greedy(generation: Mapping[str, Any]) -> bool:
    """Return whether decoding is greedy, given by ``do_sample``, else by the temperature (default 0)."""
    chosen = generation.get("do_sample")
    return not generation.get("temperature") if chosen is None else chosen is False


def _reward(fields: Mapping[str, Any], metric: str) -> float | None:
    """Return the score by ``metric``, or by the first metric that is a number (corpus metrics are lists)."""
    if metric:
        if metric not in fields:
            raise BadField(f"no metric {metric}")
        return get_number(fields, metric)
    first = _first_metric(fields)
    return None if first is None else get_number(fields, first)


def _first_metric(fields: Mapping[str, Any]) -> str | None:
    names = fields.get("metrics")
    for name in names if isinstance(names, list) else ():
        if isinstance(name, str) and not isinstance(fields.get(name), list | dict):
            return name
    return None


def _claim(fields: Mapping[str, Any], metric: str, texts: Sequence[str | None]) -> ToolScore | None:
    """Return the metric's score and n, where the score covers the first n responses.

    None if n is unknown, or if a filter selects one response from all (such as a majority vote).
    """
    name, kept = metric or _first_metric(fields) or "", fields.get("filtered_resps")
    value, passed = finite(fields.get(name)), _PASS.search(name)
    k = int(passed[1] or 0) if passed else 1
    if not isinstance(kept, list) or len(kept) != 1 or value is None or not 0 <= value <= 1:
        return None
    if isinstance(kept[0], str):
        n = int(kept[0] == _NO_MATCH or kept[0] in (texts[0] or ""))
    else:
        n = len(kept[0]) if isinstance(kept[0], list) and len(kept[0]) <= len(texts) else 0
    return ToolScore(name, value, n, k) if 1 <= k <= n and "maj" not in str(fields.get("filter")) else None


def _filtered(fields: Mapping[str, Any], response: str | None) -> str | None:
    """Return the answer that the filter extracted, if it is a substring of the response."""
    filtered = fields.get("filtered_resps")
    if not isinstance(filtered, list) or len(filtered) != 1 or not isinstance(filtered[0], str):
        return None
    return None if filtered[0] in (response, _NO_MATCH, "") else filtered[0]


IMPORTER = Importer(
    name="lm-eval",
    title="lm-evaluation-harness, --log_samples",
    suffixes=(".jsonl",),
    recognises=has_fields("doc_id", "doc", "target", "arguments", "resps"),
    place=place,
    read_samples=read_samples,
    settings=settings,
    score_table=score_table,
)
