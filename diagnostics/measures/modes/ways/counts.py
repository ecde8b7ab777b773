"""Counts of the ways in which correct samples solve their problems, at several levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int

from oversharp.diagnostics.measures.contract import Evidence, cached_per_evidence
from oversharp.diagnostics.measures.counts import Counts, load_common_counts
from oversharp.diagnostics.measures.declare import Input, Loaded
from oversharp.diagnostics.ways.contract import MOST_SAMPLES

#: Levels at which ways are compared, from fine to coarse. The first level is the way itself.
LEVELS = ("way", "written", "operations", "final", "strategy")
SCOPES = ("all", *LEVELS[1:])
MISSING = (
    "no correct sample was parsed for its way: there is no correct sample, or there are more than "
    f"{MOST_SAMPLES:,} samples"
)
NO_PAIR = "no problem has two correct samples with a known way"
#: Columns of ``way_counts`` that measures use.
WAY_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "way_counts": ("checkpoint_id", "problem_id", "level", "way", "first_half", "n")
}


@dataclass(frozen=True, kw_only=True)
class WayRows:
    """Rows of ``way_counts`` at one checkpoint, its counts, and the leading way of each problem.

    ``leading`` maps a problem to the most frequent way in the first half of the base's samples. Ties are broken by the
    way's name.
    """

    checkpoint_id: str
    rows: pd.DataFrame
    counts: Counts
    leading: pd.Series
    evidence: Evidence

    @property
    def is_base(self) -> bool:
        """Whether the checkpoint is the base."""
        return self.checkpoint_id == self.evidence.base_id

    def select_level(self, level: str) -> pd.DataFrame:
        """Return the rows of one level, including those of unknown way."""
        return self.rows[self.rows["level"] == level]

    def select_comparable(self) -> pd.DataFrame:
        """Return the rows of the samples that did not determine the leading way."""
        rows = self.select_level(LEVELS[0])
        return rows[~rows["first_half"].astype(bool)] if self.is_base else rows


@cached_per_evidence
def load_ways(evidence: Evidence) -> Loaded[WayRows]:
    """Load the views ``way_counts`` and ``problem_counts``."""
    counts, why = load_common_counts(evidence)
    frame = evidence.frames["way_counts"]
    rows_of = dict(iter(frame.groupby("checkpoint_id", observed=True)))
    leading = _leading_ways(rows_of.get(evidence.base_id, frame[:0]))
    rows = {
        i: WayRows(checkpoint_id=i, rows=rows_of.get(i, frame[:0]), counts=own, leading=leading, evidence=evidence)
        for i, own in counts.items()
    }
    return rows, why


def _leading_ways(base_rows: pd.DataFrame) -> pd.Series:
    rows = base_rows[base_rows["level"] == LEVELS[0]]
    first = rows[rows["first_half"].astype(bool) & rows["way"].notna()]
    ordered = first.sort_values(["problem_id", "n", "way"], ascending=[True, False, True])
    return ordered.drop_duplicates("problem_id").set_index("problem_id")["way"]


WAYS = Input(
    load=load_ways, needs=("problem_counts", "way_counts"), missing=MISSING, columns=WAY_COLUMNS, first_round=True
)


@dataclass(frozen=True, kw_only=True)
class WayPairs:
    """Correct samples by way at the base and at one checkpoint, for the same problems.

    ``base_W`` and ``late_W`` count the samples of one way of one problem. ``n_W`` is the number of samples of that
    problem. ``unknown_W`` counts the checkpoint's correct samples of that problem whose way is unknown. Each of them
    may use this way.
    """

    n_W: Int[np.ndarray, " way"]
    base_W: Int[np.ndarray, " way"]
    late_W: Int[np.ndarray, " way"]
    unknown_W: Int[np.ndarray, " way"]


def pair_ways(base: WayRows, late: WayRows) -> WayPairs:
    """Count the samples of every way of every problem that the base or the checkpoint used."""
    rows = pd.concat([base.select_level(LEVELS[0]), late.select_level(LEVELS[0])])
    is_known = rows["way"].notna()
    counts = rows[is_known].pivot_table(
        index=["problem_id", "way"], columns="checkpoint_id", values="n", aggfunc="sum", fill_value=0, observed=True
    )
    counts = counts.reindex(columns=[base.checkpoint_id, late.checkpoint_id], fill_value=0)
    unknown = rows[~is_known & (rows["checkpoint_id"] == late.checkpoint_id)].groupby("problem_id")["n"].sum()
    problems = counts.index.get_level_values("problem_id")
    n_of = dict(zip(late.counts.problem_ids, late.counts.n_P, strict=True))
    return WayPairs(
        n_W=np.array([n_of[problem] for problem in problems], dtype=np.int64),
        base_W=counts[base.checkpoint_id].to_numpy(dtype=np.int64),
        late_W=counts[late.checkpoint_id].to_numpy(dtype=np.int64),
        unknown_W=unknown.reindex(problems, fill_value=0).to_numpy(dtype=np.int64),
    )
