"""lighteval: ``details_{task}_{date}.parquet``, in ``{output_dir}/details/{model}/{date}/``.

Each row is a problem, with the struct columns ``doc``, ``metric`` and ``model_response``. The field ``text`` of
``model_response`` has all responses to the problem. Metrics are per problem. With a single response, the reward is the
first metric, or the one chosen by ``--reward``. With several responses, samples have no rewards and we grade them by
the gold choice. We compare these grades with a metric of the file: the one chosen by ``--reward``, else the first that
is a share of correct responses or a pass@k (``avg@n:n=4``, ``pass@k:k=1&n=4``, in older versions
``math_pass@1:4_samples``). lighteval pads the lists of tokens to the same length, so the number of tokens is unknown.
Sampling settings are in ``{output_dir}/results/{model}/results_{date}.json``, if that file exists. Step and run are in
the model's name: ``…/checkpoint-40``.

Source: lighteval 0.13.0, ``EvaluationTracker.save``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

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
    get_text,
    inner,
    split_folders,
)
from oversharp.diagnostics.ingest.formats.rows import first_record, read_each, records
from oversharp.diagnostics.series.folders import run_and_step
from oversharp.diagnostics.verifiers.extraction import hash_answer
from oversharp.diagnostics.verifiers.reading.golds import any_of

_READ = ("doc.query", "doc.choices", "doc.gold_index", "doc.id", "metric", "model_response.text")
_FILE = re.compile(r"details_(.+)_(\d{4}-\d\d-\d\dT[\d.-]+)\.parquet")
#: Regular expressions: metrics that are a share of correct responses, and metrics that aggregate several responses.
_COUNTS, _OF_SEVERAL = re.compile(r"(?<![a-z-])(avg|pass)@(\d+)?"), re.compile("maj@|g-pass@")
_N, _K = re.compile(r"[:&]n=(\d+)|:(\d+)_samples"), re.compile(r"[:&]k=(\d+)")
#: Rows per batch. The number is small because each row may have many responses.
_ROWS_AT_ONCE = 16


def place(path: Path) -> FilePlace:
    """Return the task, and run and step from the model's name (between ``details`` and the date)."""
    run, step = run_and_step(split_folders(path.absolute().parent.parent, "details")[1])
    named = _FILE.fullmatch(path.name)
    return FilePlace(run=run or None, step=step, task=re.sub(r"\|\d+$", "", named[1]) if named else None)


def settings(path: Path) -> dict[str, Any]:
    """Return the sampling settings in the results file. The token limit is that of the first problem."""
    of_task = get_sampling_settings(inner(first_record(path), "doc"), max_tokens="generation_size")
    model = inner(inner(_results(path), "config_general"), "model_config")
    of_model = get_sampling_settings(inner(model, "generation_parameters"), max_tokens="max_new_tokens")
    system = get_optional_text(model, "system_prompt")
    return {**of_task, **of_model, **({"system_prompt": system} if system else {})}


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per response."""
    greedy = settings(path).get("temperature") == 0
    return read_each(
        path,
        lambda line, fields: _samples(line, fields, options.reward, greedy=greedy),
        columns=_READ,
        rows_at_once=_ROWS_AT_ONCE,
    )


def _samples(line: int, fields: Mapping[str, Any], metric: str | None, *, greedy: bool) -> Iterator[Recorded]:
    doc = inner(fields, "doc")
    prompt = get_text(doc, "query")
    texts = inner(fields, "model_response").get("text")
    if not isinstance(texts, list) or not texts:
        raise BadField("generates no text; tasks that compare likelihoods cannot be imported")
    if not all(response is None or isinstance(response, str) for response in texts):
        raise BadField("a response is not text")
    gold, metrics, alone = _gold(doc), inner(fields, "metric"), len(texts) == 1
    value = _reward(metrics, metric) if alone else None
    claim = None if alone else _claim(metrics, metric, len(texts))
    if None in texts and value is None and claim is None:
        raise BadField("a response is not text")
    for index, response in enumerate(texts):
        yield Recorded(
            line=line,
            prompt=prompt,
            response=response or "",  # a null response is empty, as the metric treats it
            gold=gold,
            reward=value,
            problem=get_optional_text(doc, "id"),
            index=index,
            greedy=greedy and alone,  # greedy decoding yields a single response
            claim=None if index else claim,
        )


def score_table(path: Path, options: ReadOptions) -> ScoreTable | None:
    """Return all scores by metric; None with one metric, or if ``options`` chooses a metric."""
    names = list(inner(first_record(path), "metric"))
    if options.reward is not None or len(names) < 2:
        return None

    def rows() -> Iterator[tuple[str, Mapping[str, float]]]:
        for record in records(path, columns=_READ, rows_at_once=_ROWS_AT_ONCE):
            fields = {} if isinstance(record, Fault) else record[1]
            texts, metrics = inner(fields, "model_response").get("text"), inner(fields, "metric")
            if isinstance(texts, list) and len(texts) == 1:
                scores = {name: score for name in metrics if (score := finite(metrics[name])) is not None}
                yield str(get_optional_text(inner(fields, "doc"), "id")), scores

    return gather_scores(rows(), taken=f"the first metric, {names[0]}", flag="--reward METRIC")


def _gold(doc: Mapping[str, Any]) -> str | None:
    """Return the correct choice; with several correct choices, a gold that accepts any of them."""
    choices, which = doc.get("choices"), doc.get("gold_index")
    if not isinstance(choices, list):
        return None
    places = [place for place in (which if isinstance(which, list) else [which]) if isinstance(place, int)]
    right = [choices[place] for place in places if 0 <= place < len(choices)]
    golds = [hash_answer(text) or text for text in right if isinstance(text, str) and text]
    return any_of(golds) if golds else None


def _reward(metrics: Mapping[str, Any], metric: str | None) -> float | None:
    if metric is not None and metric not in metrics:
        raise BadField(f"no metric {metric}")
    name = metric or next(iter(metrics), None)
    return None if name is None else get_number(metrics, name)


def _claim(metrics: Mapping[str, Any], chosen: str | None, n_texts: int) -> ToolScore | None:
    """Return the score of the chosen metric, or of the first that is a share of correct responses.

    If the name of the chosen metric is unknown, it is assumed to be the share of correct responses.
    """
    if chosen is not None and chosen not in metrics:
        raise BadField(f"no metric {chosen}")
    for name in metrics if chosen is None else (chosen,):
        value, size = finite(metrics[name]), _counted(name, n_texts)
        if chosen is not None and _OF_SEVERAL.search(name) is None:
            size = size or (n_texts, 1)
        if size is not None:  # use the same metric in every row, even if its value is missing in this row
            return (
                ToolScore(name, value, *size) if value is not None and 0 <= value <= 1 and size[0] <= n_texts else None
            )
    return None


def _counted(name: str, n_texts: int) -> tuple[int, int] | None:
    """Return n and k of a metric that counts correct responses among the first n; None for other metrics.

    >>> _counted("avg@n:n=4", 8), _counted("pass@k:k=2&n=4", 8), _counted("math_pass@1:4_samples", 8)
    ((4, 1), (4, 2), (4, 1))
    >>> _counted("maj@n:n=4", 8), _counted("extractive_match", 8)
    (None, None)
    """
    kind, n, k = _COUNTS.search(name), _N.search(name), _K.search(name)
    if kind is None:
        return None
    of_n = int(n[1] or n[2]) if n else n_texts
    if kind[1] == "avg":
        return (of_n if n or not kind[2] else int(kind[2])), 1
    asked = k[1] if k else kind[2]
    return (of_n, int(asked)) if asked and 1 <= int(asked) <= of_n else None


def _results(path: Path) -> Any:
    """Return the contents of the results file of the same run; empty without such a file."""
    output, model = split_folders(path.absolute().parent.parent, "details")
    named = _FILE.fullmatch(path.name)
    if output is None or named is None:
        return {}
    try:
        return msgspec.json.decode((output / "results" / model / f"results_{named[2]}.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}


IMPORTER = Importer(
    name="lighteval",
    title="lighteval, --save-details",
    suffixes=(".parquet",),
    recognises=has_fields("doc", "metric", "model_response"),
    place=place,
    read_samples=read_samples,
    settings=settings,
    score_table=score_table,
)
