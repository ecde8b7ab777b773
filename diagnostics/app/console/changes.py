"""Print the results of ``diff`` and ``lost`` as text or JSON.

Functions return the exit code.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.app.console.layout import (
    OutputColumn,
    OutputRow,
    print_lines,
    print_rows,
    print_table,
    shortened_cell,
)
from oversharp.diagnostics.app.console.verdict import change_text, number_row
from oversharp.diagnostics.records.amounts import about_count, p_value_text, plural
from oversharp.diagnostics.records.cells import escape_controls

if TYPE_CHECKING:
    from oversharp.diagnostics.changes.difference import StepDifference
    from oversharp.diagnostics.changes.lost import AnswerCount, LostProblem, LostProblems
    from oversharp.diagnostics.changes.problems import ProblemChange
    from oversharp.diagnostics.statistics.comparison import RunDifference

#: Width in terminal columns of a problem's text, of its id, and of an answer.
_TITLE_WIDTH, _ID_WIDTH, _ANSWER_WIDTH = 60, 16, 60


def show_diff(result: StepDifference, as_json: bool, *, store_path: Path, explain: bool) -> int:
    """Print pass@k at both checkpoints, significantly changed problems, and the next command."""
    if as_json:
        print(json.dumps({**asdict(result), "sentences": result.sentences}, indent=2, ensure_ascii=False))
        return 0
    print_rows(_diff_rows(result))
    if explain:
        print_rows(OutputRow(label="in words", value=sentence) for sentence in result.sentences)
    print_lines([""])
    _print_pass_at_k(result)
    significant = [change for change in result.problems if change.sure]
    if significant:
        print_lines([""])
        _print_problems(significant[: result.most], result)
        _print_more(len(significant) - result.most, "changed significantly: add --most N; --json has all")
    print_lines([""])
    print_rows([OutputRow(label="next", value=f"oversharp {_lost_command(result, store_path)}", is_whole=True)])
    return 0


def show_lost(result: LostProblems, as_json: bool, *, store_path: Path, explain: bool) -> int:
    """Print the lost problems in order of p. Also prints answers if ``lost`` returned them."""
    if as_json:
        print(json.dumps({**asdict(result), "sentence": result.sentence}, indent=2, ensure_ascii=False))
        return 0
    print_rows(_lost_rows(result))
    if explain:
        print_rows([OutputRow(label="in words", value=result.sentence)])
    changes = [problem.change for problem in result.problems]
    has_answers = any(problem.before or problem.after for problem in result.problems)
    if changes and not has_answers:
        print_lines([""])
        _print_problems(changes, result)
    for problem in result.problems if has_answers else ():
        print_lines(["", *_answer_lines(problem, result)])
    _print_more(result.n_listed - len(changes), "lost, or solved significantly less often: add --most N")
    print_lines([""])
    command = _lost_command(result, store_path)
    if has_answers:
        command = f"view {shlex.quote(str(store_path))} --series {shlex.quote(result.series)}"
    print_rows([OutputRow(label="next", value=f"oversharp {command}", is_whole=True)])
    return 0


def _lost_command(result: StepDifference | LostProblems, store_path: Path) -> str:
    """Return the command that prints answers to the problems lost between these checkpoints."""
    command = f"lost {shlex.quote(str(store_path))} --series {shlex.quote(result.series)}"
    if not result.after.is_base:
        command += f" --step {result.after.step}"
    if not result.before.is_base:
        command += f" --since {result.before.step}"
    return f"{command} --answers"


def _series_row(result: StepDifference | LostProblems) -> OutputRow:
    steps = f"{result.before.name} → {result.after.name}"
    return OutputRow(label="series", value=f"{result.series}: {steps}, {plural(result.n_problems, 'problem')}")


def _diff_rows(result: StepDifference) -> Iterator[OutputRow]:
    yield _series_row(result)
    tasks = sorted({row.task for row in result.changes})
    for task in tasks:
        rows = [row for row in result.changes if row.task == task]
        if len(tasks) > 1:
            yield OutputRow(label="task", value=task)
        yield OutputRow(label="points", value=" before → after   change [95 % interval]", is_whole=True, style="bold")
        yield _change_row("pass@1", rows[0])
        if len(rows) > 1:
            yield _change_row("worst pass@k", min(rows, key=lambda row: row.difference))
    counts = {state: len(result.of_state(state)) for state in ("lost", "gained", "fell", "rose")}
    significant = {state: sum(change.sure for change in result.of_state(state)) for state in counts}
    tested = result.why_untested is None
    chance = {"lost": result.lost_by_chance, "gained": result.gained_by_chance}
    for state, count in counts.items():
        sure = f", {significant[state]} significantly" if tested and count else ""
        expected = _by_chance(chance.get(state)) if tested else ""
        yield OutputRow(label=state, value=f"{plural(count, 'problem')}{sure}{expected}")
    yield from _warning_rows(result)


def _by_chance(expected: float | None) -> str:
    return "" if expected is None else f" ({about_count(expected)} by chance alone)"


def _change_row(label: str, row: RunDifference) -> OutputRow:
    p = "" if row.p_adjusted is None else f", p = {p_value_text(row.p_adjusted)}"
    change = change_text(row.difference, row.low, row.high)
    return number_row(label, row.first, row.second, change, f"k = {row.k}{p}".replace("= <", "< "))


def _lost_rows(result: LostProblems) -> Iterator[OutputRow]:
    yield _series_row(result)
    if result.why_untested is None:
        expected = _by_chance(result.lost_by_chance)
        significantly = f", {result.n_surely_lost} significantly" if result.n_lost else ""
        yield OutputRow(label="lost", value=f"{plural(result.n_lost, 'problem')}{significantly}{expected}")
        yield OutputRow(
            label="fell", value=f"{plural(result.n_surely - result.n_surely_lost, 'problem')} significantly"
        )
    else:
        yield OutputRow(label="lost", value=plural(result.n_lost, "problem"))
    yield from _warning_rows(result)


def _warning_rows(result: StepDifference | LostProblems) -> Iterator[OutputRow]:
    if result.why_untested is not None:
        yield OutputRow(label="warning", value=f"no test: {result.why_untested}")
    yield from (OutputRow(label="warning", value=note) for note in result.notes)


def _print_pass_at_k(result: StepDifference) -> None:
    names, has_tasks = (result.before.name, result.after.name), len({row.task for row in result.changes}) > 1
    columns = (
        *((OutputColumn(heading="task", is_text=True, may_shorten=True),) if has_tasks else ()),
        *(OutputColumn(heading=heading) for heading in ("k", *names, "change, points", "adjusted p")),
    )
    rows = [
        (
            *((row.task,) if has_tasks else ()),
            str(row.k),
            f"{100 * row.first:.1f}",
            f"{100 * row.second:.1f}",
            change_text(row.difference, row.low, row.high),
            p_value_text(row.p_adjusted),
        )
        for row in result.changes
    ]
    print_table(columns, rows)


def _print_problems(changes: Sequence[ProblemChange], result: StepDifference | LostProblems) -> None:
    has_ids = any(change.problem != change.problem_id for change in changes)
    columns = (
        *((OutputColumn(heading="id", is_text=True),) if has_ids else ()),
        OutputColumn(heading="problem", is_text=True, may_shorten=True),
        OutputColumn(heading=result.before.name),
        OutputColumn(heading=result.after.name),
        OutputColumn(heading="adjusted p"),
        OutputColumn(heading="state", is_text=True),
    )
    rows = [
        (
            *((shortened_cell(change.problem, _ID_WIDTH),) if has_ids else ()),
            change.title,
            f"{change.correct_before}/{change.n_before}",
            f"{change.correct_after}/{change.n_after}",
            p_value_text(change.p_adjusted),
            f"{change.state}{'' if change.sure else ', or chance'}",
        )
        for change in changes
    ]
    print_table(columns, rows)


def _answer_lines(problem: LostProblem, result: LostProblems) -> Iterator[str]:
    change = problem.change
    yield f"{shortened_cell(change.title, _TITLE_WIDTH)}   ({shortened_cell(change.problem, _ID_WIDTH)})"
    p = "" if change.p_adjusted is None else f", adjusted p {p_value_text(change.p_adjusted)}"
    yield f"  {change.state}{'' if change.sure else ', or chance'}{p}"
    width = max(len(result.before.name), len(result.after.name))
    sides = (
        (result.before.name, problem.before, change.correct_before, change.n_before),
        (result.after.name, problem.after, change.correct_after, change.n_after),
    )
    for name, answers, correct, n in sides:
        yield f"  {name:{width}}  {correct}/{n} correct"
        yield from (f"    {_answer_text(answer)}" for answer in answers)
        n_others = n - sum(answer.n for answer in answers)
        if n_others:
            yield f"    {n_others} × other answers"
    # print a correct response from before, and the most frequent wrong response from after
    yield from _response_lines(result.before.name, next((answer for answer in problem.before if answer.correct), None))
    yield from _response_lines(
        result.after.name, next((answer for answer in problem.after if not answer.correct), None)
    )


def _answer_text(answer: AnswerCount) -> str:
    text = "no parsed answer" if answer.answer is None else shortened_cell(answer.answer, _ANSWER_WIDTH)
    return f"{answer.n} × {text}{' ✓' if answer.correct else ''}"


def _response_lines(name: str, answer: AnswerCount | None) -> Iterator[str]:
    if answer is not None:
        yield f"  {'a correct response' if answer.correct else 'a response'} of {name}:"
        yield from (f"    | {escape_controls(line)}" for line in answer.response.strip().splitlines() or ["(empty)"])


def _print_more(n: int, text: str) -> None:
    if n > 0:
        print_lines([f"{plural(n, 'more problem')} {text}"])
