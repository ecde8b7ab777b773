"""Responses that one of two verifiers accepts and the other does not: the shortlist that tells which of them errs."""

from __future__ import annotations

import pandas as pd

from oversharp.diagnostics.verifiers.names import grader_name
from oversharp.reports import numbers
from oversharp.reports.evidence.source import Source
from oversharp.reports.records import Cell, Column, Table

#: Of a response, its end: there the answer is. And of an answer.
_END_CHARACTERS, _ANSWER_CHARACTERS = 160, 60


def disagreement_tables(source: Source) -> tuple[Table, ...]:
    """One table per series whose samples were graded again; none where the verifiers agree on all of them."""
    found = source.disagreements
    return tuple(_table(str(name), rows) for name, rows in found.groupby("series", sort=False))


def _table(series: str, rows: pd.DataFrame) -> Table:
    first = rows.iloc[0]
    n_all = int(first["n_all"])
    shown = "all of them" if len(rows) == n_all else f"{len(rows)} of them, the latest of each problem and kind"
    return Table(
        title=f"Responses on which two verifiers disagree, {series}",
        columns=(
            Column(name="step"),
            Column(name="problem", numeric=False),
            Column(name="samples"),
            Column(name="accepted by", numeric=False),
            Column(name=f"answer by {grader_name(str(first['own_verifier']))}", numeric=False),
            Column(name=f"answer by {first['verifier']}", numeric=False),
            Column(name="end of the response", numeric=False),
        ),
        rows=tuple(
            (
                Cell.count(row["step"]),
                Cell(text=str(row["source_id"] or row["problem_id"]), code=True),
                Cell.count(row["n"]),
                Cell(text=str(row["verifier"]) if row["correct"] else grader_name(str(row["own_verifier"]))),
                Cell(text=_answer(row["own_answer"], str(row["own_state"]))),
                Cell(text=_answer(row["answer"], str(row["state"]))),
                Cell(text=_ended(str(row["ending"]))),
            )
            for row in rows.to_dict("records")
        ),
        note=f"{numbers.plural(n_all, 'different response')} in all, {shown}; the view grade_disagreements has them.",
        folded=True,
    )


def _answer(answer: object, state: str) -> str:
    """The answer that a grader took, cut short; NULL where it did not tell.

    >>> _answer(None, "ok"), _answer("7", "parse_fail")
    ('not recorded', '7 (parse fail)')
    """
    text = answer if isinstance(answer, str) else "not recorded"
    shown = text if len(text) <= _ANSWER_CHARACTERS else f"{text[: _ANSWER_CHARACTERS - 1]}…"
    return shown if state == "ok" else f"{shown} ({state.replace('_', ' ')})"


def _ended(text: str) -> str:
    """The last characters on one line.

    >>> _ended("So it is\\n7.")
    'So it is 7.'
    """
    line = " ".join(text.split())
    return line if len(line) <= _END_CHARACTERS else f"…{line[1 - _END_CHARACTERS :]}"
