"""Bound of a theorem, which may be undefined for a given case."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """``value`` of a bound, or None and ``why`` it is undefined.

    >>> Bound(why="the batch has no incorrect sample").value is None
    True
    """

    value: float | None = None
    why: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.why is None):
            raise ValueError("a bound has a value or a reason, not both or neither")
