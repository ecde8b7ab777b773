"""lm-evaluation-harness: ``samples_{task}_{date}.jsonl``, which ``--log_samples`` writes to ``{output_path}/{model}/``.

Every row holds a problem under one *filter* and, in ``resps``, all its responses before any filter: a problem is read
once. A metric judges the filtered response, or several together, never each of them: with ``repeats`` above 1 no sample
has a score of its own, and ``target`` grades them. These grades are compared with the metric of the responses that it
is told of: the first, where the filter keeps one text and takes it from there, or all that the filter keeps. Where a
problem has one response its score counts, of the first filter and the first metric, or of those that ``--reward
METRIC`` or ``--reward METRIC,FILTER`` names. Tasks that compare likelihoods generate no text. The step is in the
model's name: ``…__checkpoint-40``.

Source: lm-evaluation-harness 0.4.13, ``evaluate`` and ``EvaluationTracker.save_results_samples``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded, ToolScore
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    chat_text,
    finite,
    numeric,
    optional_text,
    sampling_settings,
    whole,
)
from oversharp.diagnostics.ingest.formats.rows import first_record, records
from oversharp.diagnostics.records.errors import ImportFileError
from oversharp.diagnostics.series.folders import run_and_step
from oversharp.diagnostics.verifiers.extraction import hash_answer
from oversharp.diagnostics.verifiers.reading.golds import any_of

_KNOWN_BY = frozenset({"doc_id", "doc", "target", "arguments", "resps"})
_FILE = re.compile(r"samples_(.+)_\d{4}-\d\d-\d\dT[\d.-]+\.jsonl")
#: A metric that estimates pass@k, with its k where it is told.
_PASS = re.compile(r"pass(?:@|_at_)(\d+)?")
#: What a filter gives that finds nothing.
_NO_MATCH = "[invalid]"
#: The harness's names of the longest response, the first that is there counts.
_MAX_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """By the fields of a row."""
    return record.keys() >= _KNOWN_BY


def place(path: Path) -> FilePlace:
    """Run and step in the name of the model's folder, where ``__`` stands for a slash; the task in the file's name."""
    run, step = run_and_step(path.absolute().parent.name.replace("__", "/"))
    named = _FILE.fullmatch(path.name)
    return FilePlace(run=run or None, step=step, task=named[1] if named else None)


def settings(path: Path) -> dict[str, float | int]:
    """How the first row's responses were drawn."""
    try:
        [(_, _, generation), *_] = _requests(first_record(path))
    except BadField:
        return {}
    longest = next((name for name in _MAX_TOKENS if generation.get(name) is not None), _MAX_TOKENS[0])
    told = sampling_settings(generation, max_tokens=longest)
    return {**told, "temperature": 0.0} if _is_greedy(generation) else told


def read(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """One sample per response. Raises ``ImportFileError`` if no row is of the filter that ``options.reward`` names."""
    metric, _, wanted = (options.reward or "").partition(",")
    reward_name = wanted or None
    filters: set[str] = set()
    seen: set[int] = set()
    for record in records(path):
        if isinstance(record, Fault):
            yield record
            continue
        line, fields = record
        its_filter = str(fields.get("filter"))
        filters.add(its_filter)
        reward_name = reward_name or its_filter
        if wanted and its_filter != wanted:
            continue
        try:
            doc_id = whole(fields, "doc_id")
            if doc_id is None:
                raise BadField("no doc_id")
            if doc_id not in seen:
                yield from _samples(line, fields, doc_id, metric if its_filter == reward_name else None)
                seen.add(doc_id)
        except BadField as bad:
            yield Fault(line, str(bad))
    if wanted and filters and wanted not in filters:
        raise ImportFileError(f"{path}: no filter {wanted!r} for --reward; there are {', '.join(sorted(filters))}")


def _gold(target: object) -> str | None:
    """The answer; any of them where several are right. Of a worked solution (GSM8K) the answer that it states."""
    golds = [
        hash_answer(gold) or gold
        for one in (target if isinstance(target, list) else [target])
        if (gold := optional_text({"target": one}, "target"))
    ]
    return any_of(golds) if golds else None


def _samples(line: int, fields: Mapping[str, Any], doc_id: int, metric: str | None) -> Iterator[Recorded]:
    """All responses of a row; their score is that of ``metric``, "" for the first, None for no score at all."""
    requests = _requests(fields)
    gold = _gold(fields.get("target"))
    alone = len(requests) == len(requests[0][1]) == 1
    value = _reward(fields, metric) if alone and metric is not None else None
    claim = _claim(fields, metric, requests[0][1]) if len(requests) == 1 and not alone and metric is not None else None
    for number, (prompt, texts, generation) in enumerate(requests):
        for index, response in enumerate(texts):
            yield Recorded(
                line=line,
                prompt=prompt,
                response=response,
                gold=gold,
                reward=value,
                problem=str(doc_id) if len(requests) == 1 else f"{doc_id}.{number}",
                index=index,
                answer=None if value is None else _filtered(fields, response),
                greedy=_is_greedy(generation),
                claim=None if index else claim,
            )


def _requests(fields: Mapping[str, Any]) -> list[tuple[str, list[str], Mapping[str, Any]]]:
    """Prompt, responses and generation settings of every request that generated text; at least one."""
    groups, arguments = fields.get("resps"), fields.get("arguments")
    if not isinstance(groups, list) or not isinstance(arguments, Mapping):
        raise BadField("resps or arguments are not there, or of another kind")
    found = []
    for number, texts in enumerate(groups):
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            continue  # likelihoods
        given = arguments.get(f"gen_args_{number}")
        if not isinstance(given, Mapping):
            raise BadField("arguments hold no gen_args of a response")
        generation = given.get("arg_1")
        found.append((_prompt(given.get("arg_0")), texts, generation if isinstance(generation, Mapping) else {}))
    if not found:
        raise BadField("no generated text: a task that compares likelihoods?")
    return found


def _prompt(value: object) -> str:
    """The context; that of a chat model behind an API is a list of one text, its messages as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        try:
            messages = msgspec.json.decode(value[0])
        except (ValueError, RecursionError):
            messages = None
        if isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages):
            return chat_text(messages, "the prompt")
    raise BadField("the prompt is not text")


def _is_greedy(generation: Mapping[str, Any]) -> bool:
    """Without ``do_sample`` the temperature decides, and 0 is its default."""
    chosen = generation.get("do_sample")
    return not generation.get("temperature") if chosen is None else chosen is False


def _reward(fields: Mapping[str, Any], metric: str) -> float | None:
    """Of ``metric``, or else of the first that gives a number for a row: corpus metrics give parts of a sum."""
    if metric:
        if metric not in fields:
            raise BadField(f"no metric {metric}")
        return numeric(fields, metric)
    first = _first_metric(fields)
    return None if first is None else numeric(fields, first)


def _first_metric(fields: Mapping[str, Any]) -> str | None:
    names = fields.get("metrics")
    for name in names if isinstance(names, list) else ():
        if isinstance(name, str) and not isinstance(fields.get(name), list | dict):
            return name
    return None


def _claim(fields: Mapping[str, Any], metric: str, texts: Sequence[str]) -> ToolScore | None:
    """What the metric says of the first response, or of the first ones; None where that cannot be told.

    Of one that a filter chose among all, such as by majority, it says nothing of any response.
    """
    name, kept = metric or _first_metric(fields) or "", fields.get("filtered_resps")
    value, passed = finite(fields.get(name)), _PASS.search(name)
    k = int(passed[1] or 0) if passed else 1
    if not isinstance(kept, list) or len(kept) != 1 or value is None or not 0 <= value <= 1:
        return None
    if isinstance(kept[0], str):
        n = int(kept[0] == _NO_MATCH or kept[0] in texts[0])
    else:
        n = len(kept[0]) if isinstance(kept[0], list) and len(kept[0]) <= len(texts) else 0
    return ToolScore(name, value, n, k) if 1 <= k <= n and "maj" not in str(fields.get("filter")) else None


def _filtered(fields: Mapping[str, Any], response: str) -> str | None:
    """What the filter took of the response as its answer, if it took a part."""
    filtered = fields.get("filtered_resps")
    if not isinstance(filtered, list) or len(filtered) != 1 or not isinstance(filtered[0], str):
        return None
    return None if filtered[0] in (response, _NO_MATCH, "") else filtered[0]


IMPORTER = Importer(
    name="lm-eval",
    title="lm-evaluation-harness, --log_samples",
    suffixes=(".jsonl",),
    recognises=recognises,
    place=place,
    read=read,
    settings=settings,
)
