"""Sentence about pass@k beyond the sampled k."""

from __future__ import annotations

from oversharp.diagnostics.statistics.forecast.beyond import Beyond
from oversharp.diagnostics.verdict.words.numbers import at_least_text, at_most_text


def beyond_text(beyond: Beyond) -> str:
    """Return the change of pass@k at ``beyond.k``, or why it is unknown.

    >>> interval = Beyond(k=512, cap=256, low=-0.12, high=-0.03, bracket_low=-0.3, bracket_high=0.2)
    >>> beyond_text(interval)[60:96]
    'between −12.0 and −3.0 points (95 %;'
    """
    place = f"At k = {beyond.k:,}, beyond the sampled {beyond.cap:,}, the change of pass@k is"
    if beyond.low is None or beyond.high is None:
        return f"{place} unknown: {beyond.why}."
    return (
        f"{place} between {at_least_text(beyond.low)} and {at_most_text(beyond.high)} points (95 %; "
        "assumes independent samples, and no distribution of the success rates)."
    )
