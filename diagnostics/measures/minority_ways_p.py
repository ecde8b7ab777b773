"""Minority ways, p: how likely counts like these are if no way beside the leading ones was lost.

Meaning: a small p proves that correct samples outside each problem's leading way became rarer on these very problems:
the test that the verdict makes of modes, made of ways. Under moderate sharpening they cannot.
Unit: probability, one-sided, of each checkpoint by itself: where nothing was lost, p is 0.05 or less with a chance of
5 % at most; hold the least of T checkpoints against 0.05 / T. The first half of the base's samples chooses the leading
way of each problem, the second is compared. n counts problems that show a way in the first half.
Limits: it looks at all k at once and says nothing of how much was lost. A correct sample whose way is not known counts
as a minority way now, and as none under the base, so that what could not be read is never called a loss; where many are
unknown the test finds nothing. Every problem must have as many samples.
Source: ``diagnostics.statistics.keys.exact_key``, with its sources; Definition 2.1 of [A] (arXiv 2601.15609).

>>> from diagnostics.measures._example import tiny_ways
>>> rows = [("base", f"q{i}", way, half, 8) for i in range(30) for way in "ab" for half in (True, False)]
>>> evidence = tiny_ways([*rows, *[("late", f"q{i}", "a", True, 32) for i in range(30)]], n=32)
>>> [(f.checkpoint_id, f.value < 0.01, f.n) for f in compute(evidence)]
[('late', True, 30)]
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from diagnostics.measures._counts import common_counts
from diagnostics.measures._findings import comparisons, findings_at, unknown
from diagnostics.measures._ways import MISSING, NEEDS, OF_WAYS, besides_the_choice, leading_ways, whys
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.keys import PairedCounts, exact_key, inference_ks

SEED = 0


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint but the base; unknown where no problem shows a way, or where samples are unequal."""
    return findings_at(MEASURE, comparisons(evidence, whys(evidence)), lambda i: [_finding(evidence, i)])


def _finding(evidence: Evidence, checkpoint_id: str) -> Finding:
    n_P = common_counts(evidence).n_P[checkpoint_id]
    leading = leading_ways(evidence)
    if leading.empty:
        return unknown(MEASURE, checkpoint_id, "no problem shows a way in the first half of the base's samples")
    if n_P.min() < n_P.max() or n_P.min() < 4:
        return unknown(MEASURE, checkpoint_id, "problems have unequal numbers of samples here, or fewer than 4 each")
    n = int(n_P[0])
    counts = PairedCounts(
        base_P=_minority(evidence, evidence.base_id, leading, unread_too=False),
        late_P=_minority(evidence, checkpoint_id, leading, unread_too=True),
        n_base=n - n // 2,
        n_late=n,
    )
    p = exact_key(counts, ks=inference_ks(n - n // 2), rng=np.random.default_rng(SEED))
    return Finding(checkpoint_id=checkpoint_id, measure=MEASURE.name, unit=MEASURE.unit, value=p, n=len(leading))


def _minority(evidence: Evidence, checkpoint_id: str, leading: pd.Series, *, unread_too: bool) -> np.ndarray:
    """Correct samples of each problem that did not go the leading way."""
    own = besides_the_choice(evidence, checkpoint_id)
    own = own[own["problem_id"].isin(leading.index)]
    beside = (own["way"] != own["problem_id"].map(leading)) & own["way"].notna()
    counted = own[beside | own["way"].isna()] if unread_too else own[beside]
    return counted.groupby("problem_id")["n"].sum().reindex(leading.index, fill_value=0).to_numpy(dtype=np.int64)


MEASURE = Measure(
    name="minority_ways_p",
    title="Were minority ways lost?",
    unit="probability",
    section="modes",
    needs=NEEDS,
    missing=MISSING,
    plot=Plot(x="step", y_label="p, no minority way was lost", y_range=(0.0, 1.0)),
    compute=compute,
    of_base=False,
    columns=OF_WAYS,
)
