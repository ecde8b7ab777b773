"""Counts of the ways in which correct samples solve their problems, level by level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
from jaxtyping import Int

from oversharp.diagnostics.measures._counts import common_counts
from oversharp.diagnostics.measures.contract import Evidence, View
from oversharp.diagnostics.ways.contract import MOST_SAMPLES

#: From fine to coarse. The way itself is what a measure means without further words.
LEVELS = ("way", "written", "operations", "final", "strategy")
NEEDS: tuple[View, ...] = ("problem_counts", "way_counts")
MISSING = f"no correct sample was read for its way: there is none, or there are more than {MOST_SAMPLES:,} samples"
NO_PAIR = "no problem has two correct samples with a known way"
#: What measures read of the view.
OF_WAYS: Mapping[View, tuple[str, ...]] = MappingProxyType(
    {"way_counts": ("checkpoint_id", "problem_id", "level", "way", "first_half", "n")}
)


def scope_of(level: str) -> str:
    """The scope of a finding at that level."""
    return "all" if level == LEVELS[0] else level


def rows_at(evidence: Evidence, level: str) -> pd.DataFrame:
    """The rows of ``way_counts`` at one level, known ways and unknown ones."""
    frame = evidence.frames["way_counts"]
    return frame[frame["level"] == level]


def whys(evidence: Evidence) -> Mapping[str, str]:
    """Why a checkpoint cannot be used: it lacks samples of some problem."""
    return common_counts(evidence).why


@dataclass(frozen=True, kw_only=True)
class WaysBesideBase:
    """Known and unknown correct samples of the same problems, at the base and at one checkpoint, n samples of each.

    ``base_W`` and ``late_W`` count the samples of one way of one problem, ``unread_W`` those correct ones at the
    checkpoint whose way is not known: any of them may be of that way.
    """

    n_W: Int[np.ndarray, " way"]
    base_W: Int[np.ndarray, " way"]
    late_W: Int[np.ndarray, " way"]
    unread_W: Int[np.ndarray, " way"]


def ways_beside_base(evidence: Evidence, checkpoint_id: str) -> WaysBesideBase:
    """Every way of every problem that the base or the checkpoint went."""
    rows = rows_at(evidence, LEVELS[0])
    rows = rows[rows["checkpoint_id"].isin([evidence.base_id, checkpoint_id])]
    known = rows[rows["way"].notna()]
    counts = known.pivot_table(
        index=["problem_id", "way"], columns="checkpoint_id", values="n", aggfunc="sum", fill_value=0, observed=True
    ).reindex(columns=[evidence.base_id, checkpoint_id], fill_value=0)
    late = rows[(rows["checkpoint_id"] == checkpoint_id) & rows["way"].isna()]
    unread = late.groupby("problem_id")["n"].sum()
    problems = counts.index.get_level_values("problem_id")
    n_of = dict(zip(common_counts(evidence).problem_ids, common_counts(evidence).n_P[checkpoint_id], strict=True))
    return WaysBesideBase(
        n_W=np.array([n_of[problem] for problem in problems], dtype=np.int64),
        base_W=counts[evidence.base_id].to_numpy(dtype=np.int64),
        late_W=counts[checkpoint_id].to_numpy(dtype=np.int64),
        unread_W=unread.reindex(problems, fill_value=0).to_numpy(dtype=np.int64),
    )


def leading_ways(evidence: Evidence) -> pd.Series:
    """Problem → the way that the first half of the base's samples went most often, the first by name where several."""
    rows = rows_at(evidence, LEVELS[0])
    chosen = rows[(rows["checkpoint_id"] == evidence.base_id) & rows["first_half"].astype(bool) & rows["way"].notna()]
    ordered = chosen.sort_values(["problem_id", "n", "way"], ascending=[True, False, True])
    return ordered.drop_duplicates("problem_id").set_index("problem_id")["way"]


def besides_the_choice(evidence: Evidence, checkpoint_id: str) -> pd.DataFrame:
    """The rows that did not choose the leading way: of the base its second half, of another checkpoint all."""
    rows = rows_at(evidence, LEVELS[0])
    rows = rows[rows["checkpoint_id"] == checkpoint_id]
    return rows[~rows["first_half"].astype(bool)] if checkpoint_id == evidence.base_id else rows
