"""References of the papers that the report cites as [A], [B] and [C]. A section that cites them ends with them."""

from __future__ import annotations

from dataclasses import replace

from oversharp.reports.records import Block, Constant, Figure, Folded, Missing, Section, Table

PAPERS = {
    "A": "When Sharpening Becomes Collapse, arXiv 2601.15609",
    "B": "The Debate on RLVR Reasoning Capability Boundary, arXiv 2510.04028",
    "C": "The Reasoning Boundary Paradox, OpenReview",
}


def references(letters: str = "ABC") -> tuple[str, ...]:
    """Return the references of these papers.

    >>> references("A")
    ('[A] When Sharpening Becomes Collapse, arXiv 2601.15609',)
    """
    return tuple(f"[{letter}] {PAPERS[letter]}" for letter in letters)


def with_sources(section: Section) -> Section:
    """Add the references that the section cites. Letters in responses and problems are ignored."""
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
