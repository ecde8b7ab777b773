"""What a reader of ways is: from the text of a response to how it solves its problem, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

#: Of an audit with more samples no way is read: beyond that nobody has measured what it takes.
MOST_SAMPLES = 3_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """How a response solves its problem, at several depths; or ``why`` that is not known.

    ``steps`` are compared: two responses whose steps are nearly the same go the same way. ``parts`` are steps that
    others may leave unwritten: they tell two ways apart only where both have some. ``written`` is the finest level,
    ``operations``, ``final`` (the last step) and ``strategy`` are coarser ones.
    """

    strategy: str | None = None
    steps: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    written: str = ""
    operations: str = ""
    final: str = ""
    why: str | None = None

    def __post_init__(self) -> None:
        if (self.why is None) == (not self.steps):
            raise ValueError("a signature has steps, or a reason why it has none")


class WaysReader(Protocol):
    """Reads signatures. It sees texts alone: no checkpoint, no problem, no grade.

    ``name`` and ``version`` stand beside everything that it read; whoever changes what it reads raises the version.
    Two signatures of one strategy whose similarity is ``joined_from`` or more are one way: chosen once, on pairs that
    people judged, and the same for all checkpoints. A reader that names classes itself gives one step each.
    """

    name: str
    version: int
    joined_from: float

    def read(self, texts: Sequence[str]) -> list[Signature]:
        """One signature per text, in order; a text that it cannot read has a ``why``. Deterministic."""
        ...
