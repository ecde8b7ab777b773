"""Prints the results of ``diff`` and ``lost`` on a terminal, or as JSON; each returns the command's exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oversharp.diagnostics.records.amounts import p_value_text, plural
from oversharp.diagnostics.records.cells import visible

if TYPE_CHECKING:
    from oversharp.diagnostics.changes.difference import StepDifference
    from oversharp.diagnostics.changes.lost import AnswerCount, LostProblem, LostProblems
    from oversharp.diagnostics.changes.problems import ProblemChange

_PIPED_COLUMNS = 1_000_000
_TITLE_CHARACTERS, _ANSWER_CHARACTERS = 60, 60


def show_diff(result: StepDifference, as_json: bool) -> int:
    """pass@k at both checkpoints, k by k, and the problems that surely changed."""
    if as_json:
        print(json.dumps({**asdict(result), "sentences": result.sentences}, indent=2, ensure_ascii=False))
        return 0
    out = _console()
    _say(out, *result.sentences, "")
    out.print(_pass_at_k_table(result), crop=False)
    sure = [one for one in result.problems if one.sure]
    if sure:
        _say(out, "")
        out.print(_problem_table(sure[: result.most], result), crop=False)
        _say(out, *_more(len(sure) - result.most, "surely changed; --most shows more, --json has all"))
    _say(out, *_notes(result.notes))
    return 0


def show_lost(result: LostProblems, as_json: bool) -> int:
    """The problems that were lost, the surest first, with the answers where they were asked for."""
    if as_json:
        print(json.dumps({**asdict(result), "sentence": result.sentence}, indent=2, ensure_ascii=False))
        return 0
    out = _console()
    _say(out, result.sentence)
    changes = [one.change for one in result.problems]
    if changes and not any(one.before or one.after for one in result.problems):
        _say(out, "")
        out.print(_problem_table(changes, result), crop=False)
    elif changes:
        for one in result.problems:
            _say(out, "", *_answers_of(one, result))
    _say(out, *_more(result.n_listed - len(changes), "lost or surely fell; --most shows more"))
    _say(out, *_notes(result.notes))
    return 0


def _console() -> Console:
    """On a terminal tables are folded; in a pipe lines are as long as they are."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPED_COLUMNS)


def _pass_at_k_table(result: StepDifference) -> Table:
    from oversharp.diagnostics.verdict.record import bounds_text, signed_text

    rows, names = result.changes, (result.before.name, result.after.name)
    several = len({row.task for row in rows}) > 1
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    if several:
        table.add_column("task")
    for heading in ("k", *(f"{name}, %" for name in names), "change, points", "adjusted p"):
        table.add_column(escape(visible(heading)), justify="right", no_wrap=True)
    for row in rows:
        change = escape(f"{signed_text(row.difference)}{bounds_text(row.low, row.high)}")
        cells = (str(row.k), f"{100 * row.first:.1f}", f"{100 * row.second:.1f}", change, p_value_text(row.p_adjusted))
        table.add_row(*([escape(visible(row.task))] if several else []), *cells)
    return table


def _problem_table(changes: Sequence[ProblemChange], result: StepDifference | LostProblems) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    named = any(one.problem != one.problem_id for one in changes)
    if named:
        table.add_column("id", overflow="fold", max_width=24)
    table.add_column("problem", overflow="fold")
    for heading in (f"correct, {result.before.name}", result.after.name, "adjusted p"):
        table.add_column(escape(visible(heading)), justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in changes:
        counts = (f"{one.correct_before} of {one.n_before}", f"{one.correct_after} of {one.n_after}")
        sure = f"surely {one.state}" if one.sure else f"{one.state}, perhaps by chance"
        table.add_row(
            *([_cell(one.problem)] if named else []), _cell(one.title), *counts, p_value_text(one.p_adjusted), sure
        )
    return table


def _answers_of(one: LostProblem, result: LostProblems) -> Iterable[str]:
    change = one.change
    yield f"{_short(change.title, 2 * _TITLE_CHARACTERS)}   ({_short(change.problem, 24)})"
    sure = "surely " if change.sure else ""
    p = "" if change.p_adjusted is None else f", adjusted p {p_value_text(change.p_adjusted)}"
    yield f"  {sure}{change.state}{p}"
    width = max(len(result.before.name), len(result.after.name))
    sides = (
        (result.before.name, one.before, change.correct_before, change.n_before),
        (result.after.name, one.after, change.correct_after, change.n_after),
    )
    for name, answers, correct, n in sides:
        others = n - sum(answer.n for answer in answers)
        told = [*map(_answer, answers), *([f"others ×{others}"] if others else [])]
        yield f"  {name:{width}}  {correct} of {n} correct: {'; '.join(told)}"
    # of the first a correct one, of the second the most frequent wrong one
    yield from _response(result.before.name, next((a for a in one.before if a.correct), None))
    yield from _response(result.after.name, next((a for a in one.after if not a.correct), None))


def _answer(said: AnswerCount) -> str:
    text = "no readable answer" if said.answer is None else _short(said.answer, _ANSWER_CHARACTERS)
    return f"{text} ×{said.n}{' ✓' if said.correct else ''}"


def _response(name: str, said: AnswerCount | None) -> Iterable[str]:
    if said is not None:
        yield f"  {'a correct response' if said.correct else 'a response'} of {name}:"
        yield from (f"    | {visible(line)}" for line in said.response.strip().splitlines() or ["(nothing)"])


def _cell(text: str) -> str:
    return escape(_short(text, _TITLE_CHARACTERS))


def _short(text: str, most: int) -> str:
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _more(n: int, what: str) -> Iterable[str]:
    return [f"{plural(n, 'more problem')} {what}"] if n > 0 else []


def _notes(notes: Iterable[str]) -> Iterable[str]:
    return [f"note    {note}" for note in notes]


def _say(out: Console, *lines: str) -> None:
    for line in lines:
        out.print(visible(line), markup=False, soft_wrap=True)
