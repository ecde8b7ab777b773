"""Key to the paper letters [A], [B], [C]; each section that cites a paper ends with it."""

from __future__ import annotations

from dataclasses import replace

from oversharp.reports.records import Block, Constant, Figure, Folded, Missing, Section, Table

PAPERS = {
    "A": "When Sharpening Becomes Collapse, arXiv 2601.15609",
    "B": "The Debate on RLVR Reasoning Capability Boundary, arXiv 2510.04028",
    "C": "The Reasoning Boundary Paradox, OpenReview",
}


def references(letters: str = "ABC") -> tuple[str, ...]:
    """Return the reference of each of ``letters``.

    >>> references("A")
    ('[A] When Sharpening Becomes Collapse, arXiv 2601.15609',)
    """
    return tuple(f"[{letter}] {PAPERS[letter]}" for letter in letters)


def with_sources(section: Section) -> Section:
    """Add the references that the section's own text cites; texts of models and problems are ignored."""
    text = "\n".join((*section.lead, *(words for block in section.blocks for words in _words(block))))
    letters = "".join(letter for letter in PAPERS if f"[{letter}]" in text)
    return replace(section, sources=section.sources or references(letters))


def _words(block: Block) -> tuple[str, ...]:
    match block:
        case Figure():
            return (block.caption, *block.notes)
        case Constant():
            return (block.text,)
        case Missing():
            return block.why
        case Table():
            return (block.note,)
        case Folded():
            return tuple(words for inner in block.blocks for words in _words(inner))
        case _:
            return ()
