"""Query the samples of two checkpoints of a series on their common problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
from jaxtyping import Int

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.prompts import prompt_titles
from oversharp.diagnostics.statistics.problem_changes import ProblemCounts, StoppedPair
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import why_untested
from oversharp.diagnostics.verdict.record import Verdict

_CHECKPOINTS = """
SELECT step, checkpoint, is_base
FROM series_checkpoints
WHERE series = $series AND checkpoint_id IN (SELECT checkpoint_id FROM sampled_counts WHERE series = $series)
ORDER BY is_base DESC, step
"""
_RULE = "SELECT first_round, enough FROM current_audits WHERE series = $series"
_COUNTS = """
SELECT
    s.step, s.is_base, s.problem_id, s.task, s.n AS n_sampled, s.n_correct AS n_correct_sampled, s.n_cap, p.n,
    p.n_correct, p.solved
FROM sampled_counts AS s
JOIN problem_counts AS p USING (series, step, is_base, problem_id)
WHERE s.series = $series
  AND ((s.is_base AND ($first IS NULL OR $second IS NULL)) OR (NOT s.is_base AND s.step IN ($first, $second)))
ORDER BY s.problem_id
"""
_PROBLEMS = """
SELECT p.problem_id, coalesce(p.source_id, p.problem_id) AS problem, p.prompt, ap.cluster
FROM audit_problems AS ap
JOIN current_audits AS a USING (audit_id)
JOIN problems AS p USING (problem_id)
WHERE a.series = $series
ORDER BY p.problem_id
"""

#: Cause that the verdict cannot exclude → text about it.
_CAUSES: Mapping[str, str] = MappingProxyType(
    {
        "format": "unparsed samples may explain all of it",
        "unread": "too few samples were parsed to decide whether parsing is the cause",
        "guessing": "false accepts of the base may explain all of it",
    }
)


@dataclass(frozen=True, kw_only=True)
class ComparedCheckpoint:
    """A checkpoint with samples.

    ``is_base`` distinguishes the base from a trained checkpoint of the same step.
    """

    step: int
    checkpoint: str
    is_base: bool

    @property
    def name(self) -> str:
        """Name of the checkpoint in sentences."""
        return "the base" if self.is_base else f"step {self.step}"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Samples of both checkpoints on their common problems, ordered by problem id.

    ``sampled`` are all samples, of which the base may have more. pass@k uses these. ``counts`` have equal numbers of
    samples of a problem at both checkpoints, to compare single problems. With a stopping rule, both are all samples up
    to where it stopped. ``cluster_P`` numbers the clusters of related problems; a problem without a cluster has its own
    number. ``notes`` are caveats. ``why_untested`` is the reason if these samples allow no test.
    """

    series: str
    before: ComparedCheckpoint
    after: ComparedCheckpoint
    problem_ids: tuple[str, ...]
    sampled: ProblemCounts
    counts: ProblemCounts
    task_P: tuple[str, ...]
    names: tuple[str, ...]
    titles: tuple[str, ...]
    cluster_P: Int[np.ndarray, " problem"]
    notes: tuple[str, ...]
    why_untested: str | None


def open_for_reading(store_path: Path, memory_gib: float | None = None) -> Store:
    """Open the store with a memory limit.

    Raises ``StoreError`` if there is no store, and the errors of ``Store.bound_memory``.
    """
    if not store_path.exists():
        raise StoreError(f"{store_path}: no such store; run `oversharp audit` or `oversharp import` first")
    store = Store.open(store_path, read_only=True)
    store.bound_memory(memory_gib)
    return store


def checkpoints_of(store: Store, series: str) -> tuple[ComparedCheckpoint, ...]:
    """Return the checkpoints of ``series`` with graded samples, the base first."""
    rows = store.frame(_CHECKPOINTS, series=series)
    return tuple(
        ComparedCheckpoint(step=int(row["step"]), checkpoint=str(row["checkpoint"]), is_base=bool(row["is_base"]))
        for row in rows.to_dict("records")
    )


def checkpoint_at(points: tuple[ComparedCheckpoint, ...], flag: str, step: int | None) -> ComparedCheckpoint:
    """Return the checkpoint at ``step``, or the base for None.

    A trained checkpoint takes precedence over a base with the same step. Raises ``ConfigError`` with the existing
    steps.
    """
    matches = [point for point in points if (point.is_base if step is None else point.step == step)]
    if not matches:
        existing = ", ".join(f"{item.step} (base)" if item.is_base else str(item.step) for item in points)
        requested = "the base" if step is None else f"step {step}"
        raise ConfigError(
            f"{flag}: there are no samples of {requested}; there are samples of step {existing or 'none'}"
        )
    return matches[-1]


def since_base(store: Store, series: str, *, step: int | None, since: int | None) -> Pair:
    """Return the checkpoint at ``step``, paired with the one at ``since``.

    The defaults are the last checkpoint and the base. Raises ``ConfigError`` if one has no samples, if only the base
    has samples, or if both are the same. Also raises the errors of ``read_pair``.
    """
    points = checkpoints_of(store, series)
    if points and all(item.is_base for item in points):
        raise ConfigError(f"{series}: only the base has samples; a comparison needs samples of another checkpoint")
    before = checkpoint_at(points, "--since", since)
    last = max((point.step for point in points if not point.is_base), default=None)
    after = checkpoint_at(points, "--step", last if step is None else step)
    if before == after:
        raise ConfigError(f"--step {after.step}: {after.name} cannot be compared with itself; pass another --step")
    return read_pair(store, series, before, after)


def read_pair(store: Store, series: str, before: ComparedCheckpoint, after: ComparedCheckpoint) -> Pair:
    """Return both checkpoints on their common problems. Raises ``StoreError`` if there are none."""
    rows = store.frame(
        _COUNTS,
        series=series,
        first=None if before.is_base else before.step,
        second=None if after.is_base else after.step,
    )
    first, second = (_select_rows(rows, point) for point in (before, after))
    both = first.merge(second, left_index=True, right_index=True, suffixes=("_before", "_after"))
    rules = _stopping_rules(store, series, both)
    if rules is not None:
        both = both[_is_at_end(both, rules)]
    lacking = "samples" if rules is None else "all samples of the stopping rule"
    if both.empty:
        raise StoreError(f"{store.path}: no problem has {lacking} at {before.name} and at {after.name} of {series}")
    verdict = store.verdict(series)
    known = store.frame(_PROBLEMS, series=series).set_index("problem_id")
    known = known.assign(title=prompt_titles(known["prompt"].tolist())).loc[both.index]
    alone = "problem " + known.index.to_series()
    return Pair(
        series=series,
        before=before,
        after=after,
        problem_ids=tuple(both.index),
        sampled=_counts(both, "_sampled", rules),
        counts=_counts(both, "" if rules is None else "_sampled", rules),
        task_P=tuple(both["task_before"].astype(str)),
        names=tuple(known["problem"].astype(str)),
        titles=tuple(known["title"]),
        cluster_P=np.asarray(pd.factorize(known["cluster"].astype("string").fillna(alone))[0]),
        notes=_notes(verdict, (before, after), max(len(first), len(second)) - len(both), lacking),
        why_untested=why_untested(verdict),
    )


def _select_rows(rows: pd.DataFrame, point: ComparedCheckpoint) -> pd.DataFrame:
    own = rows[rows["is_base"] if point.is_base else ~rows["is_base"] & (rows["step"] == point.step)]
    columns = ["task", "n", "n_correct", "n_sampled", "n_correct_sampled", "n_cap", "solved"]
    return own.set_index("problem_id")[columns]


def _stopping_rules(store: Store, series: str, both: pd.DataFrame) -> tuple[StoppingRule, StoppingRule] | None:
    """Return the stopping rules of both checkpoints, None if the audit has none."""
    rule = store.frame(_RULE, series=series).iloc[0]
    if both.empty or pd.isna(rule["first_round"]):
        return None
    first, second = (
        StoppingRule.doubling(
            first=int(rule["first_round"]), cap=int(both[f"n_cap{side}"].iloc[0]), enough=int(rule["enough"])
        )
        for side in ("_before", "_after")
    )
    return first, second


def _is_at_end(both: pd.DataFrame, rules: tuple[StoppingRule, StoppingRule]) -> np.ndarray:
    """Return whether each problem has all samples that the rules draw at both checkpoints."""
    at_end = [both["solved_before"].notna(), both["solved_after"].notna()]
    for side, rule in zip(("_before", "_after"), rules, strict=True):
        ends = set(rule.ends)
        pairs = zip(both[f"n_sampled{side}"].tolist(), both[f"n_correct_sampled{side}"].tolist(), strict=True)
        at_end.append(pd.Series([pair in ends for pair in pairs], index=both.index))
    return np.logical_and.reduce(at_end).astype(bool)


def _counts(both: pd.DataFrame, of: str, rules: tuple[StoppingRule, StoppingRule] | None) -> ProblemCounts:
    return ProblemCounts(
        before_P=both[f"n_correct{of}_before"].to_numpy(dtype=np.int64),
        n_before_P=both[f"n{of}_before"].to_numpy(dtype=np.int64),
        after_P=both[f"n_correct{of}_after"].to_numpy(dtype=np.int64),
        n_after_P=both[f"n{of}_after"].to_numpy(dtype=np.int64),
        stopped=None
        if rules is None
        else StoppedPair(
            before=rules[0],
            after=rules[1],
            solved_before_P=both["solved_before"].to_numpy(dtype=bool),
            solved_after_P=both["solved_after"].to_numpy(dtype=bool),
        ),
    )


def _notes(
    verdict: Verdict | None, pair: tuple[ComparedCheckpoint, ComparedCheckpoint], n_left: int, lacking: str
) -> tuple[str, ...]:
    """Return caveats: left-out problems, warnings of the verdict, other causes of a loss."""
    left = [f"{plural(n_left, 'problem')} without {lacking} at both checkpoints left out."] if n_left else []
    if verdict is None:
        return tuple(left)
    out = {item.checkpoint: item.why for item in verdict.left_out}
    left += [
        f"The verdict leaves {entry.name} out: {out[entry.checkpoint]}." for entry in pair if entry.checkpoint in out
    ]
    causes = {step.step: step.cause for step in verdict.steps if step.lost and step.cause is not None}
    after = pair[1]
    named = [f"On the loss of {after.name}: {_CAUSES[causes[after.step]]}."] if after.step in causes else []
    return (*left, *verdict.warnings, *named)
