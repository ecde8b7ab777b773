"""Sentence on the decomposition of a change of pass@k, for report, command line and Python."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import Estimate
from oversharp.diagnostics.verdict.words.numbers import bounds_text, signed_text

#: Parts of the measure ``change_budget``, and their wording in a sentence.
PARTS_IN_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "cut_off": "truncated samples",
        "unread": "unparsed samples",
        "grader": "grades that differ from those of the second verifier",
        "sharpening": "sharpening (a lower temperature of the base has the same effect)",
        "guesses": "rarely solved problems (every accepted answer to them may be a false accept)",
        "lost": "lost problems (now solved no more often than by false accepts)",
        "gained": "gained problems (before, solved no more often than by false accepts)",
        "ways": "problems where a way of solving has disappeared or become rare",
        "unexplained": "unexplained changes on problems that both solve",
    }
)
#: Reason why a fall is significant although no single problem shows one.
_TOGETHER = "The verdict tests all problems together: chance does not explain the sum of their changes."
#: The sum of the other parts is omitted below this probability, which is printed as 0.
_LEAST = 0.0005
#: A part is significant if it is more than this multiple of the distance between it and its bound nearer to 0.
_SURELY = 1.25
#: A part is printed without its interval if both bounds are within this share of the whole change from the part.
_NEARLY_KNOWN = 0.1


def is_sure(part: Estimate) -> bool:
    """Return whether the interval, extended by a quarter, excludes 0.

    A 95 % interval that is not extended excludes 0 wrongly in one of twenty audits.
    """
    if part.value is None or part.low is None or part.high is None:
        return False
    reach = part.value - part.low if part.value > 0 else part.high - part.value
    return abs(part.value) > _SURELY * reach


def is_nearly_known(part: Estimate, whole: Estimate) -> bool:
    """Return whether both bounds are within a tenth of the whole change from the part."""
    if part.value is None or part.low is None or part.high is None:
        return False
    return max(part.value - part.low, part.high - part.value) <= _NEARLY_KNOWN * abs(whole.value or 0.0)


def is_fall_shown(verdict: Verdict | None) -> bool:
    """Return whether the label is an unexplained fall of pass@k in the window."""
    return verdict is not None and verdict.label in ("over_sharpened", "over_sharpened_here", "degraded")


def made_of_text(
    whole: Estimate, parts: Mapping[str, Estimate], *, k: int, place: str, fall_is_shown: bool = False
) -> str:
    """Return the significant parts of a change of pass@``k``, and the rest, as a sentence.

    The change (probability) is from the base to ``place``. The keys of ``parts`` are those of ``PARTS_IN_WORDS``;
    unknown parts are missing. The sentence is empty if neither a part nor the whole differs significantly from 0. A
    part has its interval unless ``is_nearly_known``. ``fall_is_shown`` is the result of ``is_fall_shown``.

    >>> whole, lost = Estimate(value=-0.1, low=-0.13, high=-0.07), Estimate(value=-0.08, low=-0.1, high=-0.06)
    >>> rest = Estimate(value=-0.02, low=-0.05, high=0.01)
    >>> made_of_text(whole, {"lost": lost, "unexplained": rest}, k=64, place="step 100")[:94]
    'pass@64 changed by −10.0 points from the base to step 100: −8.0 [−10.0, −6.0] by lost problems'
    """
    size = {name: part.value or 0.0 for name, part in parts.items()}
    sure = sorted((name for name, part in parts.items() if is_sure(part)), key=lambda name: -abs(size[name]))
    if not (sure or is_sure(whole)):
        return ""
    start = f"pass@{k} changed by {signed_text(whole.value or 0.0)} points from the base to {place}"
    if not sure:
        return f"{start}. No single part differs significantly from 0."
    *first, last = [f"{_points(parts[name], whole)} by {PARTS_IN_WORDS[name]}" for name in sure]
    listed = f"{', '.join(first)} and {last}" if first else last
    rest = (whole.value or 0.0) - sum(size[name] for name in sure)
    has_rest = abs(rest) >= _LEAST
    ending = f". The other parts, each of which may be 0, sum to {signed_text(rest)}" if has_rest else ""
    together = f" {_TOGETHER}" if fall_is_shown and "guesses" in sure and size["guesses"] < 0 else ""
    return f"{start}: {listed}{ending}.{together}"


def _points(part: Estimate, whole: Estimate) -> str:
    """Return a significant part, with its interval if that is wide compared with the whole change."""
    return signed_text(part.value or 0.0) + (
        "" if is_nearly_known(part, whole) else bounds_text(part.low, part.high, signed=True)
    )
