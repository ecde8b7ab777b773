"""Measures of ways of solving that became rarer than under the base."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int

from oversharp.diagnostics.measures.contract import Plot, Results
from oversharp.diagnostics.measures.declare import against_base
from oversharp.diagnostics.measures.modes.ways.counts import WAYS, WayRows, pair_ways
from oversharp.diagnostics.statistics.keys import PairedCounts, exact_key, inference_ks
from oversharp.diagnostics.statistics.problem_changes import SURE, ProblemCounts, change_p
from oversharp.diagnostics.statistics.units import Interval

FALLEN_SCOPES = ("fell", "lost")
SEED = 0
SCOPES = ("all", "alike")


@against_base(
    input=WAYS,
    scopes=FALLEN_SCOPES,
    title="Ways that fell significantly",
    unit="ways",
    section="strategy",
    rank=30,
    plot=Plot(x="step", group="scope", y_label="ways of single problems"),
)
def ways_fallen(base: WayRows, late: WayRows) -> Results:
    """Ways fallen: ways of single problems that became significantly rarer (5 %).

    Meaning: scope ``fell`` counts the ways of single problems whose share of the samples fell significantly. Scope
    ``lost`` counts those that no sample uses any more. Pass@k does not show such a fall if another way remains.
    Unit: ways. One-sided Fisher's exact test for each way of each problem, with Holm's correction over all of them. If
    no way fell, the probability of counting any way is at most 5 %. n counts the ways that the base used at least once.
    Each problem has the same number of samples at base and checkpoint. The base has no finding.
    Limits: with few samples only a frequent way can fall significantly. A correct sample of unknown way may use any way
    of its problem. It is counted for each of them, so an unparsed way never counts as a loss. If a way falls because
    another way rises faster, it is a loss by definition 2.1 of [A], although it may be the aim of training.
    Source: Definition 2.1 of [A] (arXiv 2601.15609), applied to ways; Fisher's test; Holm 1979, Scand. J. Stat. 6:65.

    >>> from oversharp.diagnostics.measures.examples import tiny_ways
    >>> rows = [("base", "q", "a", True, 16), ("base", "q", "b", False, 16), ("late", "q", "a", True, 32)]
    >>> evidence = tiny_ways(rows, n=32)
    >>> [(f.scope, f.value, f.n) for f in ways_fallen(evidence)]
    [('fell', 1.0, 2), ('lost', 1.0, 2)]
    """
    ways = pair_ways(base, late)
    n_seen = int((ways.base_W > 0).sum())
    if not n_seen:
        return dict.fromkeys(FALLEN_SCOPES, "no correct sample of the base has a known way")
    after_W = np.minimum(ways.late_W + ways.unknown_W, ways.n_W)
    counts = ProblemCounts(before_P=ways.base_W, n_before_P=ways.n_W, after_P=after_W, n_after_P=ways.n_W)
    has_fallen_W = (change_p(counts) <= SURE) & (after_W < ways.base_W)
    return {
        scope: Interval(mean=float(is_counted_W.sum()), low=None, high=None, n=n_seen)
        for scope, is_counted_W in zip(FALLEN_SCOPES, (has_fallen_W, has_fallen_W & (after_W == 0)), strict=True)
    }


@against_base(
    input=WAYS,
    scopes=SCOPES,
    title="Were minority ways lost?",
    unit="probability",
    section="strategy",
    rank=40,
    plot=Plot(x="step", group="scope", y_label="p, no minority way was lost", y_range=(0.0, 1.0)),
)
def minority_ways_p(base: WayRows, late: WayRows) -> Results:
    """Minority ways, p: the p value that no way other than the leading ones was lost.

    Meaning: a small p value is evidence that correct samples outside each problem's leading way became rarer on these
    problems. Moderate sharpening cannot cause that. It is the verdict's test of modes, applied to ways. The scopes
    treat samples of unknown way differently. In ``all``, a sample of unknown way can never appear as a loss. In
    ``alike``, samples of unknown way are assumed to be distributed like the others.
    Unit: probability, one-sided, for each checkpoint separately. If nothing was lost, p ≤ 0.05 with a probability of at
    most 5 %. For T checkpoints, compare the smallest p value with 0.05 / T. The first half of the base's samples
    determines the leading way of each problem, and the second half is compared. n counts problems with a known way in
    the first half.
    Limits: it tests all k at once, and does not measure the size of the loss. In ``all``, a correct sample of unknown
    way counts as a minority way at the checkpoint, but not at the base. If a few per cent are unknown, ``all`` misses
    losses. In ``alike``, the way is drawn at random (seeded) from the ways of the problem's other samples at that
    checkpoint, or from those of all problems if there are none. That detects more losses, but is wrong if unknown ways
    are mostly minority ways. If the two scopes differ, read some responses. Every problem must have the same number of
    samples.
    Source: ``oversharp.diagnostics.statistics.keys.exact_key``, with its sources; Definition 2.1 of [A] (arXiv
    2601.15609).

    >>> from oversharp.diagnostics.measures.examples import tiny_ways
    >>> rows = [("base", f"q{i}", way, half, 8) for i in range(30) for way in "ab" for half in (True, False)]
    >>> evidence = tiny_ways([*rows, *[("late", f"q{i}", "a", True, 32) for i in range(30)]], n=32)
    >>> [(f.checkpoint_id, f.scope, f.value < 0.01, f.n) for f in minority_ways_p(evidence)]
    [('late', 'all', True, 30), ('late', 'alike', True, 30)]
    """
    n_P, leading = late.counts.n_P, base.leading
    if leading.empty:
        return dict.fromkeys(SCOPES, "no problem shows a way in the first half of the base's samples")
    if n_P.min() < n_P.max() or n_P.min() < 4:
        return dict.fromkeys(SCOPES, "problems have unequal numbers of samples here, or fewer than 4 each")
    before, after = (_count_by_way(ways.select_comparable(), leading) for ways in (base, late))
    minority_P = {
        "all": (before.minority_P, after.minority_P + after.unknown_P),
        "alike": (
            before.completed(np.random.default_rng([SEED, 1])),
            after.completed(np.random.default_rng([SEED, 2])),
        ),
    }
    n = int(n_P[0])
    results = {}
    for scope, (base_P, late_P) in minority_P.items():
        counts = PairedCounts(base_P=base_P, late_P=late_P, n_base=n - n // 2, n_late=n)
        p = exact_key(counts, ks=inference_ks(n - n // 2), rng=np.random.default_rng(SEED))
        results[scope] = Interval(mean=p, low=None, high=None, n=len(leading))
    return results


@dataclass(frozen=True, kw_only=True)
class _CorrectByWay:
    """Correct samples of each problem: of the leading way, of another way, of an unknown way."""

    leading_P: Int[np.ndarray, " problem"]
    minority_P: Int[np.ndarray, " problem"]
    unknown_P: Int[np.ndarray, " problem"]

    def completed(self, rng: np.random.Generator) -> Int[np.ndarray, " problem"]:
        """Return the minority samples, including unknown ones that are assigned at random."""
        known_P = self.leading_P + self.minority_P
        overall = self.minority_P.sum() / max(int(known_P.sum()), 1)
        share_P = np.where(known_P > 0, self.minority_P / np.maximum(known_P, 1), overall)
        return np.asarray(self.minority_P + rng.binomial(self.unknown_P, share_P))


def _count_by_way(own: pd.DataFrame, leading: pd.Series) -> _CorrectByWay:
    own = own[own["problem_id"].isin(leading.index)]
    is_known, is_leading = own["way"].notna(), own["way"] == own["problem_id"].map(leading)

    def count(is_counted: pd.Series) -> np.ndarray:
        by_problem = own[is_counted].groupby("problem_id")["n"].sum()
        return np.asarray(by_problem.reindex(leading.index, fill_value=0).to_numpy(dtype=np.int64))

    return _CorrectByWay(
        leading_P=count(is_known & is_leading), minority_P=count(is_known & ~is_leading), unknown_P=count(~is_known)
    )
