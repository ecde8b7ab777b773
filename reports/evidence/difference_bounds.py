"""Clip CIs of differences to the possible range: a pass@k of 1 at the base cannot rise."""

from __future__ import annotations

import pandas as pd

_DELTA, _BAND = "_delta", "_band"
_PLACE = ["series", "measure", "scope", "k"]


def clip_differences(findings: pd.DataFrame, checkpoints: pd.DataFrame) -> pd.DataFrame:
    """Clip the bounds of every pass@k difference in ``findings`` to [−base, 1 − base].

    The estimators only bound a difference to [−1, 1] and may give "−4 to +1 points" for a base of 1.000. Clipping
    changes no direction, because the difference is always inside. ``checkpoints`` has ``series, step, is_base``.

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
    base = base[[*_PLACE, "value"]].rename(columns={"value": "base"}).drop_duplicates(_PLACE)
    before = named[_PLACE].merge(base, on=_PLACE, how="left")["base"].set_axis(findings.index)
    cut = is_delta & before.notna()
    low, high = findings["low"].astype("float64"), findings["high"].astype("float64")
    return findings.assign(
        low=low.where(~cut, low.clip(lower=-before)),
        high=high.where(~cut, high.clip(upper=1.0 - before)),
    )
