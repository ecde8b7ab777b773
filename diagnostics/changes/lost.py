"""``oversharp lost``: list the problems that a checkpoint lost, and its answers to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from oversharp.diagnostics.changes.difference import changes_of
from oversharp.diagnostics.changes.inline import block, more_problems, problem_cells, problem_heads, table
from oversharp.diagnostics.changes.problems import ProblemChange
from oversharp.diagnostics.changes.read import ComparedCheckpoint, open_for_reading, since_base
from oversharp.diagnostics.records.amounts import about_count, plural
from oversharp.diagnostics.records.cells import one_line, short_repr, shorten_response
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import NO_ANSWER
from oversharp.diagnostics.statistics.problem_changes import lost_by_chance
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import choose_series, has_texts

#: Number of different correct answers, and of different wrong answers, to show per problem and checkpoint.
MOST_ANSWERS = 3
NO_ANSWERS = "no answers: only counts of correct samples were imported"
_ANSWER_CHARACTERS = 60
_ANSWERS = """
WITH answers AS (
    SELECT
        problem_id, coalesce(mode, nullif(answer, $none)) AS answer, correct, count(*) AS n,
        first(text ORDER BY sample_index) AS response
    FROM graded_samples
    WHERE series = $series AND NOT greedy AND (common OR $stopped) AND list_contains($problem_ids, problem_id)
      AND CASE WHEN $base THEN is_base ELSE NOT is_base AND step = $step END
    GROUP BY problem_id, coalesce(mode, nullif(answer, $none)), correct
)
SELECT *
FROM answers
QUALIFY row_number() OVER (PARTITION BY problem_id, correct ORDER BY n DESC, answer NULLS LAST) <= $most
ORDER BY problem_id, correct DESC, n DESC, answer NULLS LAST
"""


@dataclass(frozen=True, kw_only=True)
class AnswerCount:
    """An answer with its number of samples. ``answer`` is None if unparsed.

    ``response`` is the first sample with this answer, shortened.
    """

    answer: str | None
    correct: bool
    n: int
    response: str


@dataclass(frozen=True, kw_only=True)
class LostProblem:
    """A problem that is solved less often, with answers at both checkpoints, correct ones first."""

    change: ProblemChange
    before: tuple[AnswerCount, ...] = ()
    after: tuple[AnswerCount, ...] = ()

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class LostProblems:
    """Problems that checkpoint ``after`` solves less often than ``before``, or not at all.

    ``problems`` are the first of ``n_listed``: significant losses, then significant falls, then the others. ``n_lost``
    counts the problems without a correct sample left, and ``n_surely_lost`` the significant ones of them. ``n_surely``
    counts all problems with a significant fall, including these. ``lost_by_chance`` is the expected number of problems
    without a correct sample left if nothing had changed; None if a stopping rule has caps from which it cannot be
    estimated.
    """

    series: str
    before: ComparedCheckpoint
    after: ComparedCheckpoint
    n_problems: int
    n_lost: int
    n_surely_lost: int
    n_surely: int
    n_listed: int
    lost_by_chance: float | None
    problems: tuple[LostProblem, ...]
    notes: tuple[str, ...] = ()
    why_untested: str | None = None

    __repr__ = short_repr

    @property
    def sentence(self) -> str:
        """Sentence with the number of losses and the number expected by chance."""
        tested = self.why_untested is None
        solved = f"every correct sample of {self.n_lost}" if self.n_lost else "none"
        seen = f"{plural(self.n_problems, 'problem')}: {self.after.name} of {self.series} lost {solved}"
        seen += f" that {self.before.name} solved"
        seen += f", {self.n_surely_lost} of them significantly" if self.n_lost and tested else ""
        if not tested:
            return f"{seen}. Changes of single problems are not tested: {self.why_untested}."
        chance = "" if self.lost_by_chance is None else f" (expected by chance: {about_count(self.lost_by_chance)})"
        others = plural(self.n_surely - self.n_surely_lost, "other problem" if self.n_lost else "problem")
        return f"{seen}{chance}. {others} fell significantly."

    def _repr_html_(self) -> str:
        """HTML for notebooks: the problems, with answers if they were requested."""
        names = (self.before.name, self.after.name)
        answered = any(item.before or item.after for item in self.problems)
        heads = (*problem_heads(*names), *(f"answers, {name}" for name in names if answered))
        rows = (
            (
                *problem_cells(problem.change),
                *(_answers_text(answers) for answers in (problem.before, problem.after) if answered),
            )
            for problem in self.problems
        )
        notes = (*more_problems(self.n_listed - len(self.problems), "lost or fell significantly"), *self.notes)
        return block((self.sentence,), tables=[table(heads, rows)] if self.problems else [], notes=notes)


def _answers_text(answers: Sequence[AnswerCount]) -> str:
    return "; ".join(
        f"{'unparsed' if answer.answer is None else one_line(answer.answer, _ANSWER_CHARACTERS)} ×{answer.n}"
        f"{' ✓' if answer.correct else ''}"
        for answer in answers
    )


def lost(
    store_path: Path,
    *,
    step: int | None = None,
    since: int | None = None,
    series: str | None = None,
    answers: bool = False,
    most: int = 20,
    memory_gib: float | None = None,
) -> LostProblems:
    """Return the problems that the checkpoint at ``step`` lost since ``since``.

    The defaults are the last checkpoint and the base.

    Raises:
        ConfigError: a step has no samples, both are the same, ``most`` is below 1, or ``series`` is needed.
        StoreError: the store or series does not exist, or no problem has samples at both.
    """
    if most < 1:
        raise ConfigError(f"--most {most}: must be 1 or more")
    with open_for_reading(store_path, memory_gib) as store:
        return lost_problems(store, choose_series(store, series), step=step, since=since, answers=answers, most=most)


def lost_problems(
    store: Store, series: str, *, step: int | None, since: int | None, answers: bool, most: int
) -> LostProblems:
    """Return the lost problems of an open store. Raises like ``lost``."""
    pair = since_base(store, series, step=step, since=since)
    before, after = pair.before, pair.after
    fallen = sorted(
        (
            item
            for item in changes_of(pair, falls_only=True)
            if item.state == "lost" or (item.state == "fell" and item.sure)
        ),
        key=loss_order,
    )
    shown = fallen[:most]
    texts = has_texts(store, series)
    stopped = pair.counts.stopped is not None
    counted = _answers(store, series, (before, after), shown, stopped=stopped) if answers and texts else {}
    return LostProblems(
        series=series,
        before=before,
        after=after,
        n_problems=len(pair.problem_ids),
        n_lost=sum(entry.state == "lost" for entry in fallen),
        n_surely_lost=sum(element.sure and element.state == "lost" for element in fallen),
        n_surely=sum(member.sure for member in fallen),
        n_listed=len(fallen),
        lost_by_chance=lost_by_chance(pair.counts),
        problems=tuple(
            LostProblem(
                change=candidate,
                before=counted.get((before, candidate.problem_id), ()),
                after=counted.get((after, candidate.problem_id), ()),
            )
            for candidate in shown
        ),
        notes=pair.notes if texts or not answers else (*pair.notes, NO_ANSWERS),
        why_untested=pair.why_untested,
    )


def loss_order(one: ProblemChange) -> tuple[int, float, int, str]:
    """Sort key of a problem: significant losses, then significant falls, then other losses.

    Each group is sorted by significance.
    """
    p = 1.0 if one.p_adjusted is None else one.p_adjusted
    return (2 if not one.sure else int(one.state != "lost")), p, -one.correct_before, one.problem_id


def _answers(
    store: Store, series: str, points: tuple[ComparedCheckpoint, ...], shown: list[ProblemChange], *, stopped: bool
) -> dict[tuple[ComparedCheckpoint, str], tuple[AnswerCount, ...]]:
    answers = {}
    for point in points:
        rows = store.frame(
            _ANSWERS,
            series=series,
            base=point.is_base,
            step=-1 if point.is_base else point.step,
            problem_ids=[item.problem_id for item in shown],
            stopped=stopped,
            most=MOST_ANSWERS,
            none=NO_ANSWER,
        )
        for problem_id, own in rows.groupby("problem_id", sort=False):
            answers[point, str(problem_id)] = tuple(
                AnswerCount(
                    answer=None if pd.isna(row["answer"]) else str(row["answer"]),
                    correct=bool(row["correct"]),
                    n=int(row["n"]),
                    response=shorten_response(str(row["response"])),
                )
                for row in own.to_dict("records")
            )
    return answers
