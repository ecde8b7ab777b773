"""``oversharp lost``: the problems that a checkpoint solves no more, and what it answers instead."""

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
from oversharp.diagnostics.records.cells import one_line, short_repr, shortened
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import NO_ANSWER
from oversharp.diagnostics.statistics.problem_changes import lost_by_chance
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import chosen_series, has_texts

#: Different answers that are told of a problem at a checkpoint: so many correct ones, and so many wrong ones.
MOST_ANSWERS = 3
NO_ANSWERS = "no answers: only counts of correct samples were imported"
_ANSWER_CHARACTERS = 60
_ANSWERS = """
WITH said AS (
    SELECT
        problem_id, coalesce(mode, nullif(answer, $none)) AS answer, correct, count(*) AS n,
        first(text ORDER BY sample_index) AS response
    FROM graded_samples
    WHERE series = $series AND NOT greedy AND common AND list_contains($problem_ids, problem_id)
      AND CASE WHEN $base THEN is_base ELSE NOT is_base AND step = $step END
    GROUP BY problem_id, coalesce(mode, nullif(answer, $none)), correct
)
SELECT *
FROM said
QUALIFY row_number() OVER (PARTITION BY problem_id, correct ORDER BY n DESC, answer NULLS LAST) <= $most
ORDER BY problem_id, correct DESC, n DESC, answer NULLS LAST
"""


@dataclass(frozen=True, kw_only=True)
class AnswerCount:
    """An answer with how many samples gave it; None is no readable one. ``response`` is the first such, shortened."""

    answer: str | None
    correct: bool
    n: int
    response: str


@dataclass(frozen=True, kw_only=True)
class LostProblem:
    """A problem that lost something, and what was answered at both checkpoints: correct answers first."""

    change: ProblemChange
    before: tuple[AnswerCount, ...] = ()
    after: tuple[AnswerCount, ...] = ()

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class LostProblems:
    """What checkpoint ``after`` solves no more, or surely less often, than ``before``.

    ``problems`` are the first of ``n_listed``: those surely lost, those that surely fell, then the others. ``n_lost``
    counts those without a correct sample left, ``n_surely_lost`` those of them that are no chance, ``n_surely`` all
    that are surely solved less often, these too. ``lost_by_chance`` is how many would have no correct sample left if
    nothing had changed.
    """

    series: str
    before: ComparedCheckpoint
    after: ComparedCheckpoint
    n_problems: int
    n_lost: int
    n_surely_lost: int
    n_surely: int
    n_listed: int
    lost_by_chance: float
    problems: tuple[LostProblem, ...]
    notes: tuple[str, ...] = ()
    why_untested: str | None = None

    __repr__ = short_repr

    @property
    def sentence(self) -> str:
        """How many, beside how many chance would make."""
        tested = self.why_untested is None
        seen = f"Of {plural(self.n_problems, 'problem')}, {self.after.name} of {self.series} lost {self.n_lost}"
        seen += f", {self.n_surely_lost} of them surely" if self.n_lost and tested else ""
        left = "no correct sample is left of what" if self.n_lost else "a correct sample is left of each that"
        seen += f": {left} {self.before.name} solved"
        if not tested:
            return f"{seen}. Which of them are lost is not tested: {self.why_untested}."
        chance = f"chance alone would make it {about_count(self.lost_by_chance)}"
        others = plural(self.n_surely - self.n_surely_lost, "other problem" if self.n_lost else "problem")
        return f"{seen} ({chance}). {others} surely fell."

    def _repr_html_(self) -> str:
        """What a notebook shows: the problems, with what was answered where that was asked for."""
        names = (self.before.name, self.after.name)
        answered = any(one.before or one.after for one in self.problems)
        heads = (*problem_heads(*names), *(f"answers, {name}" for name in names if answered))
        rows = (
            (*problem_cells(one.change), *(_said(answers) for answers in (one.before, one.after) if answered))
            for one in self.problems
        )
        notes = (*more_problems(self.n_listed - len(self.problems), "lost or surely fell"), *self.notes)
        return block((self.sentence,), tables=[table(heads, rows)] if self.problems else [], notes=notes)


def _said(answers: Sequence[AnswerCount]) -> str:
    return "; ".join(
        f"{'no readable answer' if one.answer is None else one_line(one.answer, _ANSWER_CHARACTERS)} ×{one.n}"
        f"{' ✓' if one.correct else ''}"
        for one in answers
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
    """The problems that the checkpoint at ``step`` (default: the last) lost since ``since`` (default: the base).

    Raises:
        ConfigError: there are no samples of a step, both are the same, ``most`` is below 1, or a series must be named.
        StoreError: there is no such store or series, or no problem has samples at both.
    """
    if most < 1:
        raise ConfigError(f"--most {most}: must be 1 or more")
    with open_for_reading(store_path, memory_gib) as store:
        return lost_problems(store, chosen_series(store, series), step=step, since=since, answers=answers, most=most)


def lost_problems(
    store: Store, series: str, *, step: int | None, since: int | None, answers: bool, most: int
) -> LostProblems:
    """The same of an open store. Raises as ``lost``."""
    pair = since_base(store, series, step=step, since=since)
    before, after = pair.before, pair.after
    fallen = sorted(
        (one for one in changes_of(pair) if one.state == "lost" or (one.state == "fell" and one.sure)),
        key=surely_lost_first,
    )
    shown = fallen[:most]
    texts = has_texts(store, series)
    said = _answers(store, series, (before, after), shown) if answers and texts else {}
    return LostProblems(
        series=series,
        before=before,
        after=after,
        n_problems=len(pair.problem_ids),
        n_lost=sum(one.state == "lost" for one in fallen),
        n_surely_lost=sum(one.sure and one.state == "lost" for one in fallen),
        n_surely=sum(one.sure for one in fallen),
        n_listed=len(fallen),
        lost_by_chance=lost_by_chance(pair.counts),
        problems=tuple(
            LostProblem(
                change=one,
                before=said.get((before, one.problem_id), ()),
                after=said.get((after, one.problem_id), ()),
            )
            for one in shown
        ),
        notes=pair.notes if texts or not answers else (*pair.notes, NO_ANSWERS),
        why_untested=pair.why_untested,
    )


def surely_lost_first(one: ProblemChange) -> tuple[int, float, int, str]:
    """Surely lost, then surely fell, then lost perhaps by chance; of each the surest first."""
    p = 1.0 if one.p_adjusted is None else one.p_adjusted
    return (2 if not one.sure else int(one.state != "lost")), p, -one.correct_before, one.problem_id


def _answers(
    store: Store, series: str, points: tuple[ComparedCheckpoint, ...], shown: list[ProblemChange]
) -> dict[tuple[ComparedCheckpoint, str], tuple[AnswerCount, ...]]:
    found = {}
    for point in points:
        rows = store.frame(
            _ANSWERS,
            series=series,
            base=point.is_base,
            step=-1 if point.is_base else point.step,
            problem_ids=[one.problem_id for one in shown],
            most=MOST_ANSWERS,
            none=NO_ANSWER,
        )
        for problem_id, own in rows.groupby("problem_id", sort=False):
            found[point, str(problem_id)] = tuple(
                AnswerCount(
                    answer=None if pd.isna(row["answer"]) else str(row["answer"]),
                    correct=bool(row["correct"]),
                    n=int(row["n"]),
                    response=shortened(str(row["response"])),
                )
                for row in own.to_dict("records")
            )
    return found
