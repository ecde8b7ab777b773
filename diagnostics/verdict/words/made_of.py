"""Decomposition of a change of pass@k in one sentence, for report, command line and Python."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from oversharp.diagnostics.verdict.record import Estimate, Verdict
from oversharp.diagnostics.verdict.words.numbers import bounds_text, signed_text

#: Parts of the measure ``change_budget``, and their wording in a sentence.
PARTS_IN_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "cut_off": "samples that were cut off",
        "unread": "samples without an answer that could be read",
        "grader": "grades that the second verifier does not share",
        "sharpening": "what sharpening the base alone does",
        "guesses": "problems so rarely solved that, one by one, luck would look the same",
        "lost": "problems that are solved no more often now than by luck",
        "gained": "problems that were solved no more often before than by luck",
        "ways": "problems of which a way of solving is gone or nearly gone",
        "unexplained": "unexplained, on problems that both solve",
    }
)
#: Why a significant fall may be the sum over problems none of which shows one.
_TOGETHER = "The verdict tests all problems together: luck alone does not explain that sum."
#: A smaller rest (probability) would be printed as 0, and is left out.
_LEAST = 0.0005
#: A part is significant if its distance from 0 is more than this multiple of its interval's reach towards 0.
_SURELY = 1.25
#: A part is printed without its interval if this reaches at most this share of the whole to either side.
_NEARLY_KNOWN = 0.1


def is_sure(part: Estimate) -> bool:
    """Return whether the interval excludes 0, even if it reached a quarter further.

    The intervals are 95 %, so excluding 0 alone would be a false claim in one of twenty audits.
    """
    if part.value is None or part.low is None or part.high is None:
        return False
    reach = part.value - part.low if part.value > 0 else part.high - part.value
    return abs(part.value) > _SURELY * reach


def is_nearly_known(part: Estimate, whole: Estimate) -> bool:
    """Return whether the interval reaches at most a tenth of the whole change to either side."""
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

    The change (probability) is from the base to ``place``. ``parts`` are the known ones, by their names in
    ``PARTS_IN_WORDS``. Empty if neither a part nor the whole differs significantly from 0. A part that is not known to
    a tenth of the whole is printed with its interval. ``fall_is_shown``: the verdict on the same series shows a fall,
    see ``is_fall_shown``.

    >>> whole, lost = Estimate(value=-0.1, low=-0.13, high=-0.07), Estimate(value=-0.08, low=-0.1, high=-0.06)
    >>> rest = Estimate(value=-0.02, low=-0.05, high=0.01)
    >>> made_of_text(whole, {"lost": lost, "unexplained": rest}, k=64, place="step 100")[:91]
    'Of the −10.0 points of pass@64 from the base to step 100, −8.0 [−10.0, −6.0] are problems t'
    """
    size = {name: part.value or 0.0 for name, part in parts.items()}
    sure = sorted((name for name, part in parts.items() if is_sure(part)), key=lambda name: -abs(size[name]))
    if not (sure or is_sure(whole)):
        return ""
    start = f"Of the {signed_text(whole.value or 0.0)} points of pass@{k} from the base to {place}"
    if not sure:
        return f"{start}, no single part is surely other than 0."
    *named, last = [f"{_points(parts[name], whole)} are {PARTS_IN_WORDS[name]}" for name in sure]
    listed = f"{', '.join(named)} and {last}" if named else last
    rest = (whole.value or 0.0) - sum(size[name] for name in sure)
    tells_rest = abs(rest) >= _LEAST
    ending = f"; the other parts, each of which may be 0, add up to {signed_text(rest)}" if tells_rest else ""
    together = f" {_TOGETHER}" if fall_is_shown and "guesses" in sure and size["guesses"] < 0 else ""
    return f"{start}, {listed}{ending}.{together}"


def _points(part: Estimate, whole: Estimate) -> str:
    """Return a significant part, with its interval if that is wide compared with the whole change."""
    return signed_text(part.value or 0.0) + (
        "" if is_nearly_known(part, whole) else bounds_text(part.low, part.high, signed=True)
    )
