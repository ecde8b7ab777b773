"""HTML of comparisons for notebooks: the sentences, tables and notes of the commands."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from oversharp.diagnostics.changes.problems import ProblemChange
from oversharp.diagnostics.records.amounts import p_value_text, plural
from oversharp.diagnostics.records.cells import one_line

_TITLE_CHARACTERS = 120


def block(sentences: Iterable[str], *, tables: Iterable[str], notes: Iterable[str]) -> str:
    """Return HTML with paragraphs, tables (already HTML) and a list of notes."""
    paragraphs = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<div>{paragraphs}{''.join(tables)}{f'<ul>{items}</ul>' if items else ''}</div>"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return an HTML table of plain texts.

    >>> table(["k"], [["<1"]])
    '<table><thead><tr><th>k</th></tr></thead><tbody><tr><td>&lt;1</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def problem_heads(before: str, after: str) -> tuple[str, ...]:
    """Return the column headings of ``problem_cells`` for two checkpoint names."""
    return ("problem", f"correct, {before}", f"correct, {after}", "adjusted p", "")


def problem_cells(one: ProblemChange) -> tuple[str, ...]:
    """Return the table row of a problem: title, counts, adjusted p, and significance."""
    sure = f"surely {one.state}" if one.sure else f"{one.state}, perhaps by chance"
    counts = (f"{one.correct_before} of {one.n_before}", f"{one.correct_after} of {one.n_after}")
    return (one_line(one.title, _TITLE_CHARACTERS), *counts, p_value_text(one.p_adjusted), sure)


def more_problems(n: int, what: str) -> list[str]:
    """Return a note that ``n`` more problems are not listed; empty for 0."""
    return [f"{plural(n, 'more problem')} {what}."] if n > 0 else []
