"""Read the findings of a report's series."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from oversharp.diagnostics.store.load import Frames

_DELTA, _BAND = "_delta", "_band"
_FINDING_KEY = ["series", "measure", "scope", "k"]
_TEXTS = ("series", "checkpoint", "measure", "scope", "unit", "why", "interval_over", "why_no_interval")
_FINDINGS = """
SELECT series, checkpoint, step, measure, scope, k, value, low, high, n, unit, why, interval_over,
       why_no_interval
FROM findings
ORDER BY series, measure, scope, k NULLS FIRST, step
"""


def read_findings(store: Frames, series: Sequence[str], checkpoints: pd.DataFrame) -> pd.DataFrame:
    """Return the findings of ``series``, with the bounds of differences clipped.

    Texts are Python objects. Selecting few rows, as figures do, is slow for the Arrow texts of pandas.
    """
    findings = store.frame(_FINDINGS)
    own = findings[findings["series"].isin(series)].reset_index(drop=True)
    clipped = clip_differences(own, checkpoints[checkpoints["series"].isin(series)])
    return clipped.astype(dict.fromkeys(_TEXTS, object))


def clip_differences(findings: pd.DataFrame, checkpoints: pd.DataFrame) -> pd.DataFrame:
    """Clip the bounds of every pass@k difference in ``findings`` to [−base, 1 − base].

    The estimators clip differences only to [−1, 1], so for a base of 1.000 a CI may be "−4 to +1 points". Clipping
    never excludes the estimate. ``checkpoints`` has the columns ``series, step, is_base``.

    >>> rows = [("pass_at_k", 0, 1.0, None, None), ("pass_at_k_delta", 9, -0.02, -0.05, 0.01)]
    >>> rows += [("pass_at_k_band", 9, -0.02, -0.08, 0.04)]
    >>> frame = pd.DataFrame(rows, columns=["measure", "step", "value", "low", "high"])
    >>> frame[["series", "scope", "k"]] = ["grpo", "all", 8]
    >>> checkpoints = pd.DataFrame({"series": "grpo", "step": [0, 9], "is_base": [True, False]})
    >>> clip_differences(frame, checkpoints)[["low", "high"]].iloc[1:].values.tolist()
    [[-0.05, 0.0], [-0.08, 0.0]]
    """
    measure = findings["measure"]
    is_delta = measure.str.startswith("pass_at_k") & measure.str.endswith((_DELTA, _BAND))
    level = measure.str.removesuffix(_DELTA).str.removesuffix(_BAND)
    named = findings.assign(measure=measure.where(~is_delta, level))
    bases = checkpoints.loc[checkpoints["is_base"], ["series", "step"]]
    base = findings.merge(bases, on=["series", "step"]).dropna(subset="value")
    base = base[[*_FINDING_KEY, "value"]].rename(columns={"value": "base"}).drop_duplicates(_FINDING_KEY)
    before = named[_FINDING_KEY].merge(base, on=_FINDING_KEY, how="left")["base"].set_axis(findings.index)
    cut = is_delta & before.notna()
    low, high = findings["low"].astype("float64"), findings["high"].astype("float64")
    return findings.assign(
        low=low.where(~cut, low.clip(lower=-before)),
        high=high.where(~cut, high.clip(upper=1.0 - before)),
    )
