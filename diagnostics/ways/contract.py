"""Interface of a reader of ways: from the text of a response to its signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

#: Audits with more samples get no ways: their run time has not been measured.
MOST_SAMPLES = 3_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """How a response solves its problem, at several levels; or ``why`` it is unknown.

    Two responses with nearly equal ``steps`` use the same way. ``parts`` are steps that other responses may omit: they
    separate two ways only if both responses have some. ``written`` is the finest level; ``operations``, ``final`` (the
    last step) and ``strategy`` are coarser.
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
            raise ValueError("a signature needs either steps or a reason why it has none")


class WaysReader(Protocol):
    """Reader of signatures from texts, without checkpoint, problem or grade.

    ``name`` and ``version`` are stored with its signatures; raise the version if you change what it parses. Two
    signatures of one strategy with a similarity of at least ``joined_from`` are the same way; the constant was chosen
    on pairs that people judged. A reader that assigns classes directly returns one step per signature.
    """

    name: str
    version: int
    joined_from: float

    def read(self, texts: Sequence[str]) -> list[Signature]:
        """Return one signature per text, in order; an unreadable text has a ``why``. Deterministic."""
        ...
