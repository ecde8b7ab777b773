"""Minority ways, p: how likely counts like these are if no way beside the leading ones was lost.

Meaning: a small p proves that correct samples outside each problem's leading way became rarer on these very problems:
the test that the verdict makes of modes, made of ways. Under moderate sharpening they cannot. Scope ``all`` calls
nothing a loss that may only have gone unread; scope ``alike`` takes unread samples to be of the ways of the others.
Unit: probability, one-sided, of each checkpoint by itself: where nothing was lost, p is 0.05 or less with a chance of
5 % at most; hold the least of T checkpoints against 0.05 / T. The first half of the base's samples chooses the leading
way of each problem, the second is compared. n counts problems that show a way in the first half.
Limits: it looks at all k at once and says nothing of how much was lost. In ``all`` a correct sample whose way is not
known counts as a minority way now, and as none under the base; where some in a hundred are unknown it misses losses.
In ``alike`` it is drawn (seeded) from the ways of its problem's other samples at that checkpoint, or of all problems
where there are none: that finds more, and is wrong where minority ways are what went unread. Where the two part, read
some responses. Every problem must have as many samples.
Source: ``oversharp.diagnostics.statistics.keys.exact_key``, with its sources; Definition 2.1 of [A] (arXiv 2601.15609).

>>> from oversharp.diagnostics.measures._example import tiny_ways
>>> rows = [("base", f"q{i}", way, half, 8) for i in range(30) for way in "ab" for half in (True, False)]
>>> evidence = tiny_ways([*rows, *[("late", f"q{i}", "a", True, 32) for i in range(30)]], n=32)
>>> [(f.checkpoint_id, f.scope, f.value < 0.01, f.n) for f in compute(evidence)]
[('late', 'all', True, 30), ('late', 'alike', True, 30)]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int

from oversharp.diagnostics.measures._counts import common_counts
from oversharp.diagnostics.measures._findings import comparisons, findings_at, unknown
from oversharp.diagnostics.measures._ways import MISSING, NEEDS, OF_WAYS, besides_the_choice, leading_ways, whys
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.keys import PairedCounts, exact_key, inference_ks

SEED = 0
SCOPES = ("all", "alike")


def compute(evidence: Evidence) -> list[Finding]:
    """Two per checkpoint but the base; unknown where no problem shows a way, or where samples are unequal."""
    why = whys(evidence)
    return findings_at(MEASURE, comparisons(evidence, why), lambda i: _findings(evidence, i), scopes=SCOPES)


def _findings(evidence: Evidence, checkpoint_id: str) -> list[Finding]:
    n_P = common_counts(evidence).n_P[checkpoint_id]
    leading = leading_ways(evidence)
    why = ""
    if leading.empty:
        why = "no problem shows a way in the first half of the base's samples"
    elif n_P.min() < n_P.max() or n_P.min() < 4:
        why = "problems have unequal numbers of samples here, or fewer than 4 each"
    if why:
        return [unknown(MEASURE, checkpoint_id, why, scope=scope) for scope in SCOPES]
    base, late = (_told(evidence, one, leading) for one in (evidence.base_id, checkpoint_id))
    counted = {
        "all": (base.beside_P, late.beside_P + late.unread_P),
        "alike": (
            base.completed(np.random.default_rng([SEED, 1])),
            late.completed(np.random.default_rng([SEED, 2])),
        ),
    }
    n = int(n_P[0])
    found = []
    for scope, (base_P, late_P) in counted.items():
        counts = PairedCounts(base_P=base_P, late_P=late_P, n_base=n - n // 2, n_late=n)
        p = exact_key(counts, ks=inference_ks(n - n // 2), rng=np.random.default_rng(SEED))
        found.append(
            Finding(
                checkpoint_id=checkpoint_id,
                measure=MEASURE.name,
                unit=MEASURE.unit,
                scope=scope,
                value=p,
                n=len(leading),
            )
        )
    return found


@dataclass(frozen=True, kw_only=True)
class _Correct:
    """Correct samples of each problem: of the leading way, of another one, of a way that is not known."""

    leading_P: Int[np.ndarray, " problem"]
    beside_P: Int[np.ndarray, " problem"]
    unread_P: Int[np.ndarray, " problem"]

    def completed(self, rng: np.random.Generator) -> Int[np.ndarray, " problem"]:
        """Minority samples with those of unknown way drawn from the others of their problem, or of all problems."""
        known_P = self.leading_P + self.beside_P
        overall = self.beside_P.sum() / max(int(known_P.sum()), 1)
        share_P = np.where(known_P > 0, self.beside_P / np.maximum(known_P, 1), overall)
        return np.asarray(self.beside_P + rng.binomial(self.unread_P, share_P))


def _told(evidence: Evidence, checkpoint_id: str, leading: pd.Series) -> _Correct:
    own = besides_the_choice(evidence, checkpoint_id)
    own = own[own["problem_id"].isin(leading.index)]
    is_known, is_led = own["way"].notna(), own["way"] == own["problem_id"].map(leading)

    def summed(rows: pd.Series) -> np.ndarray:
        found = own[rows].groupby("problem_id")["n"].sum()
        return np.asarray(found.reindex(leading.index, fill_value=0).to_numpy(dtype=np.int64))

    return _Correct(
        leading_P=summed(is_known & is_led), beside_P=summed(is_known & ~is_led), unread_P=summed(~is_known)
    )


MEASURE = Measure(
    name="minority_ways_p",
    title="Were minority ways lost?",
    unit="probability",
    section="modes",
    needs=NEEDS,
    missing=MISSING,
    plot=Plot(x="step", group="scope", y_label="p, no minority way was lost", y_range=(0.0, 1.0)),
    compute=compute,
    of_base=False,
    columns=OF_WAYS,
)
