"""Answers judged by hand, from data files: the row says what a verifier must make of a response, and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from oversharp.diagnostics.records.types import Grade, Problem

Row = dict[str, str]


def load_rows(name: str) -> list[Row]:
    """Rows of one JSON Lines file of this folder."""
    return [json.loads(line) for line in Path(__file__).with_name(name).read_text("utf-8").splitlines()]


def problem_of(row: Row) -> Problem:
    """The problem that a row's response answers."""
    return Problem(task="t", prompt="p", gold=row["gold"], verifier=row["verifier"])


def outcome_of(grade: Grade) -> str:
    """The word of the data files for a grade.

    "right" is accepted, "wrong" is not, "ambiguous" states no single answer, "unread" has none to compare.
    """
    return "right" if grade.correct else {"ok": "wrong", "parse_fail": "unread"}.get(grade.state, grade.state)


def misjudged(rows: Sequence[Row], grades: Sequence[Grade]) -> list[str]:
    """A line for every grade that is none of the outcomes that its row allows (``wrong|unread``)."""
    return [
        f"{row['why']}: {row['response']!r} to gold {row['gold']!r} must be {row['outcome']}, is {grade}"
        for row, grade in zip(rows, grades, strict=True)
        if outcome_of(grade) not in row["outcome"].split("|")
    ]
