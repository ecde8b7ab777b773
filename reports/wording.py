"""Sentences about changes. Their verb states a direction only if the CI excludes 0."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from oversharp.reports import numbers
from oversharp.reports.records import Direction

#: Minimum number of problems to report "no change". With fewer problems, the CI is too wide.
FEW_PROBLEMS = 10
#: Scope of measures over only the problems that list their correct modes.
WITH_MODES = "with_modes"


@dataclass(frozen=True, kw_only=True)
class Change:
    """Values at base and last checkpoint, and their paired difference ``delta`` with its CI over ``n_problems``."""

    before: float
    after: float
    delta: float
    low: float | None = None
    high: float | None = None
    n_problems: int | None = None

    @property
    def direction(self) -> Direction:
        """Direction of the change according to the CI.

        >>> Change(before=0.3, after=0.5, delta=0.2, low=0.1, high=0.3).direction
        'rose'
        >>> Change(before=0.3, after=0.5, delta=0.2, low=-0.1, high=0.5).direction
        'unchanged'
        >>> Change(before=0.3, after=0.5, delta=0.2, low=-0.1, high=0.5, n_problems=3).direction
        'unclear'
        >>> Change(before=0.3, after=0.5, delta=0.2).direction
        'unknown'
        """
        if self.low is None or self.high is None:
            return "unknown"
        if self.low > 0:
            return "rose"
        if self.high < 0:
            return "fell"
        return "unchanged" if self.n_problems is None or self.n_problems >= FEW_PROBLEMS else "unclear"

    @property
    def too_few(self) -> str:
        """Text to show instead of the CI if the direction is ``unclear``."""
        count = numbers.plural(self.n_problems or 0, "problem")
        return f"too few problems to decide ({numbers.points(self.delta)} points over {count})"


def change_of_probability(name: str, change: Change) -> str:
    """Return a sentence on the change of ``name``, without a full stop.

    >>> change_of_probability("pass@1", Change(before=0.268, after=0.485, delta=0.217, low=0.19, high=0.244))
    'pass@1 rose from 0.268 to 0.485 (+21.7 points, 95\\xa0% CI +19.0 to +24.4)'
    >>> change_of_probability("pass@8", Change(before=0.8, after=0.79, delta=-0.01, low=-0.03, high=0.01))
    'pass@8 did not change detectably: 0.800 to 0.790 (−1.0 points, 95\\xa0% CI −3.0 to +1.0)'
    """
    path = f"{numbers.number(change.before, 'probability')} to {numbers.number(change.after, 'probability')}"
    detail = f"({numbers.points(change.delta)} points, {numbers.points_interval(change.low, change.high)})"
    match change.direction:
        case "rose" | "fell" as verb:
            return f"{name} {verb} from {path} {detail}"
        case "unchanged":
            return f"{name} did not change detectably: {path} {detail}"
        case "unclear":
            return f"{name} went from {path}: {change.too_few}"
        case _:
            return f"{name} went from {path} {detail}"


def reasons(findings: pd.DataFrame) -> tuple[str, ...]:
    """Return the distinct reasons for missing values of a measure, with the steps unless a reason applies to all."""
    unknown = findings.loc[findings["value"].isna() & findings["why"].notna(), ["series", "step", "why"]]
    if unknown.empty:
        return ()
    several = findings["series"].nunique() > 1
    everywhere = set(zip(findings["series"], findings["step"], strict=True))
    places: dict[str, dict[tuple[str, int], str]] = {}
    for row in unknown.itertuples(index=False):
        text = f"{row.series} step {row.step}" if several else f"step {row.step}"
        places.setdefault(str(row.why), {})[(row.series, row.step)] = text  # type: ignore[index]
    return tuple(
        why if set(affected) == everywhere else f"{why} ({_shorten_list(list(affected.values()))})"
        for why, affected in places.items()
    )


def _shorten_list(places: list[str], limit: int = 4) -> str:
    if len(places) <= limit:
        return ", ".join(places)
    return f"{', '.join(places[: limit - 1])} and {len(places) - limit + 1} more"


def float_or_none(value: object) -> float | None:
    """Return a number from the database as float; None for NULL."""
    return None if value is None or pd.isna(value) else float(value)  # type: ignore[call-overload,arg-type]
