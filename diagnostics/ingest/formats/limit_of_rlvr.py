"""limit-of-RLVR and its kin: ``RUN/eval_results/global_step_{N}/{benchmark}/test_….jsonl``.

The evaluation scripts of limit-of-RLVR (Yue et al. 2025, arXiv 2504.13837), of simpleRL-reason and of Qwen2.5-Math,
which both derive from. One line per problem: ``idx``, ``question``, ``gt`` (the gold answer), and one entry per sample
in each of the lists ``code`` (the responses), ``pred`` (the final answers), ``score`` and, in the newer ones,
``finish_reason``. The step and the benchmark are the names of the folders, the temperature is in the file's name; at
temperature 0 the samples are greedy.

Runs that differ in the seed alone are one: ``RUN_seed1`` and ``RUN_seed2`` add up, as in the authors' ``pass@k.py``.
Base and trained model have runs of their own, each with a ``global_step_0``: name the base's folder with --base. The
scripts write the bare question and not the prompt with its template.

Source: limit-of-RLVR fd2cf37, ``math_eval.py`` and ``evaluate.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    finish_reason,
    numeric,
    optional_text,
    response_text,
    step_named,
    text,
)
from oversharp.diagnostics.ingest.formats.rows import read_each

_KNOWN_BY = frozenset({"idx", "question", "gt", "code", "pred", "score"})
_TEMPERATURE = re.compile(r"_seed\d+_t(\d+(?:\.\d+)?)_s")
_SEED = re.compile(r"[_-]seed\d+\Z")


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a record has its fields, with lists of samples in them."""
    return record.keys() >= _KNOWN_BY and isinstance(record["code"], list)


def place(path: Path) -> FilePlace:
    """Return the benchmark, the step and the run: the names of the folders."""
    folders = path.absolute().parents
    step = step_named(folders[1].name, "global_step_") if len(folders) > 1 else None
    if step is None:
        return FilePlace(task=folders[0].name or None)
    run = _SEED.sub("", folders[3].name) if len(folders) > 3 else ""
    return FilePlace(run=run or None, step=step, task=folders[0].name)


def settings(path: Path) -> Mapping[str, Any]:
    """Return the temperature in the file's name."""
    temperature = _TEMPERATURE.search(path.name)
    return {"temperature": float(temperature[1])} if temperature else {}


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield as many samples per line as it has responses."""
    greedy = settings(path).get("temperature") == 0.0
    return read_each(path, lambda line, fields: _samples(line, fields, options.reward, greedy=greedy))


def _samples(line: int, fields: Mapping[str, Any], chosen: str | None, *, greedy: bool) -> Iterator[Recorded | Fault]:
    if chosen is not None and chosen not in fields:
        raise BadField(f"no {chosen}")
    reward_name = chosen or "score"
    columns = {name: fields.get(name) for name in ("code", "pred", "finish_reason", reward_name)}
    rewards = columns[reward_name]
    if columns["code"] is None and isinstance(rewards, list):
        columns["code"] = [None] * len(rewards)
    prompt, gold, n = text(fields, "question"), optional_text(fields, "gt"), _checked_length(columns)
    problem = optional_text(fields, "idx")
    for place_in_lists in range(n):
        sample = {name: column[place_in_lists] for name, column in columns.items() if column is not None}
        try:
            reward = numeric(sample, reward_name)
            yield Recorded(
                line=line,
                prompt=prompt,
                response=response_text(sample, "code", reward),
                gold=gold,
                reward=reward,
                problem=problem,
                answer=optional_text(sample, "pred"),
                greedy=greedy,
                finish_reason=finish_reason(sample, "finish_reason"),
            )
        except BadField as bad:
            yield Fault(line, str(bad))


def _checked_length(columns: Mapping[str, Any]) -> int:
    """Return how many samples a line has. Raises ``BadField`` where its lists do not agree."""
    if not isinstance(columns["code"], list):
        raise BadField("code is not a list of responses")
    n = len(columns["code"])
    for name, column in columns.items():
        if column is not None and (not isinstance(column, list) or len(column) != n):
            raise BadField(f"{name} has not one entry per response")
    return n


IMPORTER = Importer(
    name="limit_of_rlvr",
    title="limit-of-RLVR, simpleRL-reason and Qwen2.5-Math, evaluation outputs",
    suffixes=(".jsonl",),
    recognises=recognises,
    place=place,
    read_samples=read_samples,
    settings=settings,
)
