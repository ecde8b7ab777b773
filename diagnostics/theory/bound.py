"""The value of a theorem's bound, or the reason why it is undefined for the input."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The ``value`` of a bound.

    If the bound is undefined, ``value`` is None and ``why`` is the reason.

    >>> Bound(why="the batch has no incorrect sample").value is None
    True
    """

    value: float | None = None
    why: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.why is None):
            raise ValueError("a bound has a value or a reason, not both or neither")
