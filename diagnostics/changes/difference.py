"""``oversharp diff``: compare two checkpoints of a series, by k and by problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from oversharp.diagnostics.changes.inline import block, more_problems, problem_cells, problem_heads, table
from oversharp.diagnostics.changes.problems import ProblemChange, problem_changes
from oversharp.diagnostics.changes.read import (
    ComparedCheckpoint,
    Pair,
    checkpoint_at,
    checkpoints_of,
    open_for_reading,
    read_pair,
)
from oversharp.diagnostics.records.amounts import about_count, p_value_text, plural
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.statistics.comparison import RunDifference, Samples, compare_runs
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.statistics.problem_changes import SURE, lost_by_chance
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import choose_series
from oversharp.diagnostics.verdict.words.numbers import bounds_text, points_text, signed_text


@dataclass(frozen=True, kw_only=True)
class StepDifference:
    """Changes from checkpoint ``before`` to checkpoint ``after``, on the problems of both.

    ``changes`` are the changes of pass@k by task and k. They are paired over problems and use all samples. Their
    intervals and adjusted p values are valid for all tasks and k together. ``problems`` are the problems that changed,
    the most significant first, with equal sample counts at both checkpoints, as in the report. ``lost_by_chance`` and
    ``gained_by_chance`` are the expected numbers of problems without a correct sample left, and with a first one, if
    nothing had changed. They are None if a stopping rule has caps from which they cannot be estimated. ``why_untested``
    is the reason if there are no p values and intervals. All tests assume that the two checkpoints were chosen before
    looking at results; the largest of many differences is an overestimate. The command prints ``most`` of the
    significantly changed problems.
    """

    series: str
    before: ComparedCheckpoint
    after: ComparedCheckpoint
    n_problems: int
    changes: tuple[RunDifference, ...]
    problems: tuple[ProblemChange, ...]
    lost_by_chance: float | None
    gained_by_chance: float | None
    notes: tuple[str, ...] = ()
    why_untested: str | None = None
    most: int = 12

    __repr__ = short_repr

    def of_state(self, *states: str) -> tuple[ProblemChange, ...]:
        """Return the problems in one of ``states``: lost, fell, rose, gained."""
        return tuple(problem for problem in self.problems if problem.state in states)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences about significant changes of pass@k, and the numbers of changed problems."""
        return (*_of_pass_at_k(self), _of_problems(self))

    def _repr_html_(self) -> str:
        """HTML for notebooks: pass@k at both checkpoints, and the significantly changed problems."""
        sure = [problem for problem in self.problems if problem.sure]
        heads = problem_heads(self.before.name, self.after.name)
        problems = [table(heads, map(problem_cells, sure[: self.most]))] if sure else []
        notes = (*more_problems(len(sure) - self.most, "changed significantly"), *self.notes)
        return block(self.sentences, tables=[_pass_at_k_html(self), *problems], notes=notes)


def diff(
    store_path: Path,
    *,
    steps: Sequence[int],
    series: str | None = None,
    most: int = 12,
    memory_gib: float | None = None,
) -> StepDifference:
    """Compare the checkpoints at two ``steps`` of ``series``; see ``StepDifference``.

    Raises:
        ConfigError: the steps are equal, one has no samples, ``most`` is below 1, or ``series`` is needed.
        StoreError: the store or series does not exist, or no problem has samples at both.
    """
    if len(steps) != 2 or steps[0] == steps[1]:
        raise ConfigError(f"--steps {' '.join(map(str, steps))}: pass two different steps, the earlier one first")
    if most < 1:
        raise ConfigError(f"--most {most}: must be 1 or more")
    with open_for_reading(store_path, memory_gib) as store:
        return replace(difference(store, choose_series(store, series), steps[0], steps[1]), most=most)


def difference(store: Store, series: str, first: int, second: int) -> StepDifference:
    """Compare two steps of an open store. Raises like ``diff``."""
    if first == second:
        raise ConfigError(f"--steps {first} {second}: pass two different steps, the earlier one first")
    points = checkpoints_of(store, series)
    pair = read_pair(store, series, *(checkpoint_at(points, "--steps", step) for step in (first, second)))
    changed = [item for item in changes_of(pair) if item.state != "unchanged"]
    return StepDifference(
        series=series,
        before=pair.before,
        after=pair.after,
        n_problems=len(pair.problem_ids),
        changes=_pass_at_k_changes(pair),
        problems=tuple(sorted(changed, key=_surest)),
        lost_by_chance=lost_by_chance(pair.counts),
        gained_by_chance=lost_by_chance(pair.counts.swapped),
        notes=(*_backwards(pair), *pair.notes),
        why_untested=pair.why_untested,
    )


def _pass_at_k_html(result: StepDifference) -> str:
    names = (result.before.name, result.after.name)
    rows = (
        (
            row.task,
            str(row.k),
            f"{100 * row.first:.1f}",
            f"{100 * row.second:.1f}",
            f"{signed_text(row.difference)}{bounds_text(row.low, row.high)}",
            p_value_text(row.p_adjusted),
        )
        for row in result.changes
    )
    return table(("task", "k", *(f"{name}, %" for name in names), "change, points", "adjusted p"), rows)


def _backwards(pair: Pair) -> tuple[str, ...]:
    """Return the note for steps in reverse order, for which lost and gained are exchanged."""
    first, second = pair.before, pair.after
    if first.is_base or (not second.is_base and first.step < second.step):
        return ()
    return (
        f"{first.name} is later in training than {second.name}, so lost and gained are exchanged here; "
        f"use --steps {second.step} {first.step} for the order of training.",
    )


def changes_of(pair: Pair, *, falls_only: bool = False) -> tuple[ProblemChange, ...]:
    """Return the problems that both checkpoints have, with their changes; optionally without those that rose."""
    return problem_changes(
        pair.counts,
        problem_ids=pair.problem_ids,
        names=pair.names,
        titles=pair.titles,
        independent=pair.why_untested is None,
        falls_only=falls_only,
    )


def _surest(one: ProblemChange) -> tuple[float, float, str]:
    p = 1.0 if one.p_adjusted is None else one.p_adjusted
    return p, -abs(one.correct_after / one.n_after - one.correct_before / one.n_before), one.problem_id


def _pass_at_k_changes(pair: Pair) -> tuple[RunDifference, ...]:
    counts, stopped = pair.sampled, pair.sampled.stopped
    if stopped is None:
        first_P, second_P = counts.before_P, counts.after_P
        samples: tuple[Samples, Samples] = counts.n_before_P, counts.n_after_P
        least = int(min(counts.n_before_P.min(), counts.n_after_P.min()))
    else:
        first_P, second_P = counts.codes
        samples, least = (stopped.before, stopped.after), stopped.reach
    rows = compare_runs(
        first_P,
        second_P,
        n_first=samples[0],
        n_second=samples[1],
        task_P=pair.task_P,
        ks=inference_ks(least),
        cluster_P=pair.cluster_P,
    )
    if pair.why_untested is None:
        return tuple(rows)
    return tuple(replace(row, low=None, high=None, p=None, p_adjusted=None) for row in rows)


def _of_pass_at_k(result: StepDifference) -> tuple[str, ...]:
    tasks = sorted({row.task for row in result.changes})
    of = f"From {result.before.name} to {result.after.name} of {result.series}"
    sentences = []
    for task in tasks:
        rows = [row for row in result.changes if row.task == task]
        on = f" on {task}" if len(tasks) > 1 else ""
        first = f"pass@1 {signed_text(rows[0].difference)} points{bounds_text(rows[0].low, rows[0].high)}"
        sentences.append(f"{of}{on}: {first}{_sure(rows)}.")
    return tuple(sentences)


def _sure(rows: Sequence[RunDifference]) -> str:
    """Describe the changes of pass@k that are significant after correction for all k.

    >>> fell = RunDifference(
    ...     task="a", k=8, first=0.5, second=0.4, difference=-0.1, low=-0.2, high=-0.05, p=0.001, p_adjusted=0.01,
    ...     n_problems=50)
    >>> _sure([fell])
    '; pass@k fell significantly at k = 8 by 10.0 points [5.0, 20.0]'
    """
    if all(row.p_adjusted is None for row in rows):
        return ", without a test"
    parts = []
    for word, sign in (("rose", 1), ("fell", -1)):
        sure = [r for r in rows if r.p_adjusted is not None and r.p_adjusted <= SURE and sign * r.difference > 0]
        if sure:
            most = max(sure, key=lambda row: sign * row.difference)
            size = f"{points_text(abs(most.difference))} points{_size_bounds(most, sign)}"
            ks = ", ".join(str(row.k) for row in sure)
            where = f", most at k = {most.k}" if len(sure) > 1 else ""
            parts.append(f"pass@k {word} significantly at k = {ks}{where} by {size}")
    return f"; {'; '.join(parts)}" if parts else f"; no significant change up to k = {rows[-1].k}"


def _size_bounds(row: RunDifference, sign: int) -> str:
    if row.low is None or row.high is None:
        return ""
    return bounds_text(*sorted((sign * row.low, sign * row.high)))


def _of_problems(result: StepDifference) -> str:
    lost, gained = len(result.of_state("lost")), len(result.of_state("gained"))
    sure = [problem for problem in result.problems if problem.sure]
    fell = sum(item.state in ("lost", "fell") for item in sure)
    chance = ""
    if result.lost_by_chance is not None and result.gained_by_chance is not None:
        by_chance = f"{about_count(result.lost_by_chance)} and {about_count(result.gained_by_chance)}"
        chance = f" (expected by chance: {by_chance})"
    seen = f"{plural(result.n_problems, 'problem')}: {lost} lost every correct sample, {gained} gained a first one"
    if result.why_untested is not None:
        return f"{seen}; changes of single problems are not tested: {result.why_untested}."
    return f"{seen}{chance}; {fell} fell significantly, {len(sure) - fell} rose significantly."
