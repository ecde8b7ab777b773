"""Counts without texts: n samples of a problem, of which some are correct.

The flag is --map problem=…,n=…,correct=…,step=…. Instead of ``correct``, ``share`` is the share of correct samples,
such as lighteval's ``avg@n``.

A store has samples, so each count becomes n graded samples without text. Their order is random, with a seed from step
and problem. So the first samples are a random subset, like those of a model. Measures that need texts are reported as
unknown, with that reason. The prompt is optional: by default it is the problem's id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oversharp.diagnostics.ingest.formats.contract import Fault, Importer, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    get_gold,
    get_number,
    get_optional_text,
    get_text,
    get_whole,
    parse_step,
)
from oversharp.diagnostics.ingest.formats.mapped import inner_records, place
from oversharp.diagnostics.ingest.formats.paths import samples_in
from oversharp.diagnostics.ingest.formats.rows import records
from oversharp.diagnostics.records.errors import ImportFileError
from oversharp.diagnostics.records.types import COUNTS_ALONE, NO_ANSWER, content_hash

#: Largest number of samples per problem and step: the store has two bytes for a sample index.
MOST_SAMPLES = 65_536
#: Placeholders for the text of a sample, by correctness.
NO_TEXT = {True: "[text not recorded; counted as correct]", False: "[text not recorded; counted as not correct]"}


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield the samples that each record counts.

    Raises ``ImportFileError`` if ``options`` lacks the names of the count fields.
    """
    names = dict(options.fields)
    if "n" not in names or not names.keys() & {"correct", "share"}:
        raise ImportFileError(f"{path}: the fields are not named; pass --map problem=…,n=…,correct=…,step=…")
    counted = {("response" if ours == "n" else ours): theirs for ours, theirs in names.items()}
    for record in records(path):
        if isinstance(record, Fault):
            yield record
            continue
        line, fields = record
        for inner in inner_records(fields, names):
            try:
                several = list(samples_in(inner, counted))
            except BadField as bad:
                yield Fault(line, str(bad))
                continue
            for values in several:
                yield from _expand_counts(line, {names[ours]: values[_key(ours)] for ours in names}, names)


def _key(ours: str) -> str:
    return "response" if ours == "n" else ours


def _expand_counts(line: int, fields: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[Recorded | Fault]:
    """Yield the samples of a problem's counts."""
    get = names.get
    try:
        n = _count(fields, names["n"])
        if not n:
            raise BadField(f"{names['n']} is 0")
        if n > MOST_SAMPLES:
            raise BadField(f"{names['n']} is above {MOST_SAMPLES:,}")
        correct = _count(fields, names["correct"]) if "correct" in names else _count_of_share(fields, names["share"], n)
        if correct > n:
            raise BadField(f"{names['correct']} is above {names['n']}")
        step = parse_step(fields.get(get("step", "")), get("step", ""))
        problem = get_optional_text(fields, get("problem"))
        if "prompt" in names:
            prompt = get_text(fields, names["prompt"])
        elif problem is not None:
            prompt = f"[prompt not recorded] {problem}"
        else:
            raise BadField(f"no {names['problem']}")
        gold = get_gold(fields, get("gold"))
        task, cluster = (get_optional_text(fields, get(ours)) for ours in ("task", "cluster"))
    except BadField as bad:
        yield Fault(line, str(bad))
        return
    is_correct_N = np.arange(n) < correct
    np.random.default_rng(int(content_hash(line, prompt, step, n, correct), 16)).shuffle(is_correct_N)
    for is_correct in is_correct_N.tolist():
        yield Recorded(
            line,
            prompt,
            NO_TEXT[is_correct],
            gold,
            float(is_correct),
            step,
            problem,
            answer=NO_ANSWER,
            task=task,
            cluster=cluster,
        )


def _count(fields: Mapping[str, Any], name: str) -> int:
    count = get_whole(fields, name)
    if count is None:
        raise BadField(f"no {name}")
    return count


def _count_of_share(fields: Mapping[str, Any], name: str, n: int) -> int:
    """Return the number of correct samples, given a share such as ``avg@n`` with about four decimals."""
    share = get_number(fields, name)
    if share is None:
        raise BadField(f"no {name}")
    correct = round(share * n)
    if not 0 <= share <= 1 or abs(share * n - correct) > max(1e-3, 1e-4 * n):
        raise BadField(f"{name} is {share:g}, which is not a share of {n} samples")
    return correct


IMPORTER = Importer(
    name=COUNTS_ALONE,
    title="counts of correct samples without texts, fields given by --map",
    suffixes=(".jsonl", ".ndjson", ".json", ".parquet", ".csv"),
    place=place,
    read_samples=read_samples,
)
