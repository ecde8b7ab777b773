"""Numbers of a verdict as text: steps, points (hundredths of probability), intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence


def ranges_text(places: Sequence[tuple[int, int]], *, repaired: bool = False) -> str:
    """Return the text of ranges of steps (first, last). With ``repaired`` the steps are hundredths of λ.

    >>> ranges_text([(20, 40), (80, 80)]), ranges_text([(160, 160)])
    ('steps 20–40, 80', 'step 160')
    >>> ranges_text([(25, 50), (75, 75)], repaired=True)
    'λ = 0.25–0.5, 0.75'
    """
    ends = [[f"{step / 100:g}" if repaired else str(step) for step in dict.fromkeys(both)] for both in places]
    texts = ["–".join(both) for both in ends]
    if repaired:
        return f"λ = {', '.join(texts)}"
    word = "step" if len(places) == 1 and places[0][0] == places[0][1] else "steps"
    return f"{word} {', '.join(texts)}"


def points_text(probability: float) -> str:
    """Return hundredths of probability with one decimal and a real minus sign; never −0.0."""
    text = f"{100 * probability:.1f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def at_least_text(probability: float) -> str:
    """Return points rounded down, so that "at least" is true in a sentence.

    >>> at_least_text(0.04489), at_least_text(0.045), at_least_text(-0.0571)
    ('4.4', '4.5', '−5.8')
    """
    return points_text(math.floor(1000 * probability + 1e-9) / 1000)


def at_most_text(probability: float) -> str:
    """Return points rounded up, so that "at most" is true in a sentence.

    >>> at_most_text(0.05743), at_most_text(0.057)
    ('5.8', '5.7')
    """
    return points_text(math.ceil(1000 * probability - 1e-9) / 1000)


def signed_text(probability: float) -> str:
    """Return points with a plus sign if they are above 0."""
    text = points_text(probability)
    return text if text.startswith("−") or float(text) == 0 else f"+{text}"


def bounds_text(low: float | None, high: float | None, *, signed: bool = False) -> str:
    """Return an interval in brackets, in points, rounded outward; empty if a bound is unknown.

    If the interval is on one side of 0, a bound that rounds to 0 is printed as <0 or >0.

    >>> bounds_text(-0.1161, -0.0003), bounds_text(-0.116, 0.0), bounds_text(0.0002, 0.05)
    (' [−11.7, <0]', ' [−11.6, 0.0]', ' [>0, 5.0]')
    >>> bounds_text(-0.1161, 0.05, signed=True)
    ' [−11.7, +5.0]'
    """
    if low is None or high is None:
        return ""
    ends = [at_least_text(low), at_most_text(high)]
    if low > 0 and float(ends[0]) == 0:
        ends[0] = ">0"
    if high < 0 and float(ends[1].replace("−", "-")) == 0:
        ends[1] = "<0"
    if signed:
        ends = [f"+{end}" if end[0].isdigit() and float(end) > 0 else end for end in ends]
    return f" [{ends[0]}, {ends[1]}]"
