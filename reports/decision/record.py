"""What the first screen says, before any HTML."""

from __future__ import annotations

from dataclasses import dataclass

from reports.records import Figure, Table


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """What to ship of series that were compared; ``text`` says why, what is sure and what is not."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One ruling per group of series that were compared, what there was to choose from, and what it looks like.

    ``chosen`` marks the rows of ``table`` that are recommended. ``sentences`` stand in the open, ``reading`` says how
    to read all of it and is folded.
    """

    rulings: tuple[Ruling, ...]
    table: Table
    chosen: tuple[bool, ...]
    sentences: tuple[str, ...]
    reading: tuple[str, ...]
    figures: tuple[Figure, ...]

    def __post_init__(self) -> None:
        if len(self.chosen) != len(self.table.rows):
            raise ValueError(f"decision: {len(self.table.rows)} rows but {len(self.chosen)} marks")
