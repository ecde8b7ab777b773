"""Interface of a reader of ways, which maps the text of a response to a signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

#: Largest number of samples in an audit with ways. The run time for more samples has not been measured.
MOST_SAMPLES = 3_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """How a response solves its problem, at several levels; or ``why`` it is unknown.

    Two responses with nearly equal ``steps`` use the same way. ``parts`` are steps that other responses may omit. They
    separate two ways only if both responses have parts. ``written`` is the finest level. ``operations``, ``final`` (the
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
    """Reader of signatures from texts. It does not use checkpoint, problem or grade.

    ``name`` and ``version`` are stored with its signatures. If you change what it parses, raise the version. Two
    signatures of one strategy belong to the same way if their similarity is at least ``joined_from``, a constant chosen
    on pairs that people judged. A reader that assigns classes directly returns one step per signature.
    """

    name: str
    version: int
    joined_from: float

    def read(self, texts: Sequence[str]) -> list[Signature]:
        """Return one signature per text, in order. The result is deterministic.

        A text that cannot be parsed gets a signature with ``why``.
        """
        ...
