"""limit-of-RLVR and related scripts: ``RUN/eval_results/global_step_{N}/{benchmark}/test_….jsonl``.

These are the evaluation scripts of limit-of-RLVR (Yue et al. 2025, arXiv 2504.13837) and simpleRL-reason, and
Qwen2.5-Math, from which both are derived. Each line is one problem: ``idx``, ``question``, ``gt`` (the gold answer),
and lists with one entry per sample: ``code`` (responses), ``pred`` (final answers), ``score``, and in newer versions
``finish_reason``. Step and benchmark are the names of folders. The temperature is in the file's name; at temperature 0
the samples are greedy. Runs that differ only in the seed are merged (``RUN_seed1`` and ``RUN_seed2``), as in the
authors' ``pass@k.py``. Base and trained model have separate runs, each with a ``global_step_0``: pass the base's folder
as --base. The scripts write the question without the prompt template.

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
    get_finish_reason,
    get_number,
    get_optional_text,
    get_response,
    get_text,
    parse_step_name,
)
from oversharp.diagnostics.ingest.formats.rows import read_each

_KNOWN_BY = frozenset({"idx", "question", "gt", "code", "pred", "score"})
_TEMPERATURE = re.compile(r"_seed\d+_t(\d+(?:\.\d+)?)_s")
_SEED = re.compile(r"[_-]seed\d+\Z")


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a record has the fields of these scripts, with lists of samples."""
    return record.keys() >= _KNOWN_BY and isinstance(record["code"], list)


def place(path: Path) -> FilePlace:
    """Return run, step and benchmark from the names of the folders."""
    folders = path.absolute().parents
    step = parse_step_name(folders[1].name, "global_step_") if len(folders) > 1 else None
    if step is None:
        return FilePlace(task=folders[0].name or None)
    run = _SEED.sub("", folders[3].name) if len(folders) > 3 else ""
    return FilePlace(run=run or None, step=step, task=folders[0].name)


def settings(path: Path) -> Mapping[str, Any]:
    """Return the temperature in the file's name."""
    temperature = _TEMPERATURE.search(path.name)
    return {"temperature": float(temperature[1])} if temperature else {}


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per response of each line."""
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
    prompt, gold, n = get_text(fields, "question"), get_optional_text(fields, "gt"), _checked_length(columns)
    problem = get_optional_text(fields, "idx")
    for place_in_lists in range(n):
        sample = {name: column[place_in_lists] for name, column in columns.items() if column is not None}
        try:
            reward = get_number(sample, reward_name)
            yield Recorded(
                line=line,
                prompt=prompt,
                response=get_response(sample, "code", reward),
                gold=gold,
                reward=reward,
                problem=problem,
                answer=get_optional_text(sample, "pred"),
                greedy=greedy,
                finish_reason=get_finish_reason(sample, "finish_reason"),
            )
        except BadField as bad:
            yield Fault(line, str(bad))


def _checked_length(columns: Mapping[str, Any]) -> int:
    """Return the number of samples of a line. Raises ``BadField`` if its lists differ in length."""
    if not isinstance(columns["code"], list):
        raise BadField("code is not a list of responses")
    n = len(columns["code"])
    for name, column in columns.items():
        if column is not None and (not isinstance(column, list) or len(column) != n):
            raise BadField(f"{name} does not have one entry per response")
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
