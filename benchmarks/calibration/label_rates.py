"""Error rate of each label: the highest over all cases of ``make calibration``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.calibration.real_life_cases import CASES
from benchmarks.calibration.real_life_series import Outcome
from benchmarks.calibration.series import STRICT_NULLS, interval
from oversharp.diagnostics.verdict.record import POSITIVE
from oversharp.diagnostics.verdict.rule import MARGIN

#: Labels that are wrong without a loss, and labels that are wrong with a loss.
_OF_A_LOSS = tuple(label for label in POSITIVE if label != "format")
_OF_ANOTHER_CAUSE = ("format", "guessing", "no_loss")


class Rate(NamedTuple):
    """Number of series of one case with a wrong label."""

    label: str
    count: int
    series: int
    case: str


def worst_rates(rows: Sequence[Mapping[str, Any]], calibrated: Sequence[Mapping[str, Any]]) -> list[Rate]:
    """Return, for every label, the case with the highest error rate.

    ``rows`` are those of ``real_life``, ``calibrated`` those of ``rule``.
    """
    rates = [*_of_nulls(rows, calibrated), *_of_losses(rows, calibrated)]
    worst = {label: max((one for one in rates if one.label == label), key=_share) for label in _labels(rates)}
    return [worst[label] for label in (*_OF_A_LOSS, *_OF_ANOTHER_CAUSE) if label in worst]


def label_table(rates: Sequence[Rate]) -> str:
    """Return the rates as a Markdown table."""
    lines = ["| label | wrong, % (95 % interval) | in |", "|---|---:|---|"]
    for one in rates:
        low, high = interval(one.count, one.series)
        told = f"{100 * _share(one):.1f} ({100 * low:.1f}–{100 * high:.1f})"
        lines.append(f"| {one.label} | {told} | {one.case} |")
    return "\n".join(lines)


def _labels(rates: Sequence[Rate]) -> set[str]:
    return {one.label for one in rates}


def _share(one: Rate) -> float:
    return one.count / one.series


def _of_nulls(rows: Sequence[Mapping[str, Any]], calibrated: Sequence[Mapping[str, Any]]) -> Iterator[Rate]:
    for row in rows:
        if row["null"]:
            wrong = [label for label in _OF_A_LOSS if CASES[row["name"]].counts(Outcome(label=label))]
            yield from (Rate(label, row["labels"].get(label, 0), row["series"], row["what"]) for label in wrong)
    for row in calibrated:
        if row["kind"] in STRICT_NULLS:
            yield from (Rate(label, row["labels"][label], row["series"], _cell(row)) for label in _OF_A_LOSS)


def _of_losses(rows: Sequence[Mapping[str, Any]], calibrated: Sequence[Mapping[str, Any]]) -> Iterator[Rate]:
    for row in rows:
        if "killed" in row["name"] or row["name"].startswith("plan"):
            yield from (
                Rate(label, row["labels"].get(label, 0), row["series"], row["what"]) for label in _OF_ANOTHER_CAUSE
            )
    for row in calibrated:
        if row["true_change_points"] < -100 * MARGIN:
            yield Rate("no_loss", row["labels"]["no_loss"], row["series"], _cell(row))


def _cell(row: Mapping[str, Any]) -> str:
    return f"{row['kind'].replace('_', ' ')}; {row['n_problems']} problems, n = {row['n']}"
