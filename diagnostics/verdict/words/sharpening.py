"""The comparison with the base at lower temperatures in words; pass@k in points (hundredths of probability)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import Estimate, Sharpening, SharpeningLabel
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.words.numbers import at_least_text, at_most_text, bounds_text, points_text

#: Titles of the comparison with the base at lower temperatures.
SHARPENING_TITLES: Mapping[SharpeningLabel, str] = {
    "better": "Better than sharpening",
    "sharpening_only": "Sharpening only",
    "worse": "Worse than sharpening",
    "not_shown": "Better or only sharper: not shown",
}


def sharpening_text(verdict: Verdict) -> str:
    """Return the comparison of the late checkpoints with the base at lower temperatures; empty without it.

    >>> some = [Estimate(value=v, low=low, high=high) for v, low, high in (
    ...     (0.2, 0.15, 0.25), (0.05, 0.01, 0.09), (0.04, 0.01, 0.08), (0.75, 0.6, 0.95))]
    >>> better = Sharpening(label="better", k=64, rise=some[0], gain=some[1], loss=some[2], share=some[3])
    >>> sharpening_text(Verdict(series="run", label="inconclusive", sentence="", window=(40, 60), sharpening=better))
    'Better than sharpening: at equal pass@64, pass@1 is 5.0 points [1.0, 9.0] above the base at a lower temperature.
    A lower temperature gives 75 % [60, 95] of the gain of 20.0 points of pass@1. Steps 40–60, one training seed.'
    """
    result = verdict.sharpening
    if result is None:
        return ""
    by_pass_at_k = result.loss.value is not None and result.gain.value is None
    by_pass_at_k |= result.label == "sharpening_only" and (result.gain.high is None or result.gain.high > MARGIN)
    parts = [
        _pass_at_k_compared(result) if by_pass_at_k else _pass_at_1_compared(result),
        *_share_of_gain(result),
    ]
    if result.read is not None and result.read >= 0.01:
        parts.append(f"{points_text(result.read)} points of the gain are answers that were not parsed before")
    steps = verdict.places_text([(verdict.window[0], verdict.window[-1])])
    parts.append(f"{steps[0].upper()}{steps[1:]}, one training seed")
    return f"{SHARPENING_TITLES[result.label]}: {' '.join(f'{part}.' for part in parts)}"


def _pass_at_1_compared(result: Sharpening) -> str:
    """Return pass@1 relative to the base at the lower temperature with the same pass@k."""
    value, low = result.gain.value, result.gain.low
    if value is None:
        reached = f"no lower temperature of the base reaches this pass@1 and pass@{result.k}"
        return reached if low is None or low <= 0 else f"{reached}, by at least {at_least_text(low)} points of pass@1"
    return f"at equal pass@{result.k}, pass@1 is {difference_text(result.gain)} the base at a lower temperature"


def _pass_at_k_compared(result: Sharpening) -> str:
    """Return pass@k relative to the base at the lower temperature with the same pass@1."""
    if result.loss.value is None:
        return f"pass@{result.k} is below the base at every temperature that was sampled"
    return f"at equal pass@1, pass@{result.k} is {difference_text(result.loss)} the base at a lower temperature"


def difference_text(change: Estimate) -> str:
    """Return by how many points a number is above or below another, with the bounds that are known."""
    value, low, high = change.value or 0.0, change.low, change.high
    size, side = (value, "above") if value >= 0 else (-value, "below")
    if low is not None and high is not None:
        return f"{points_text(size)} points{bounds_text(low, high) if value >= 0 else bounds_text(-high, -low)} {side}"
    if low is None:
        return f"{points_text(size)} points {side}"
    bound = f"at least {at_least_text(low)}" if low >= 0 else f"at most {at_most_text(-low)}"
    if low < 0 <= value:
        bound += " below"
    return f"{points_text(size)} points {side} ({bound})"


def _share_of_gain(result: Sharpening) -> Iterator[str]:
    share, gain = result.share, result.rise.value
    if share.value is None or share.low is None or share.high is None or gain is None:
        return
    ends = f"[{100 * share.low:.0f}, {100 * share.high:.0f}]".replace("-", "−")
    share_of = f"{100 * share.value:.0f} % {ends}"
    yield f"A lower temperature gives {share_of} of the gain of {points_text(gain)} points of pass@1"
