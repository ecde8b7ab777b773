"""Heading of a verdict and its attributes: place, scope, change of pass@1, kind of loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

#: over_sharpened       pass@k fell on these problems and in the population that they were sampled from
#: over_sharpened_here  pass@k fell on these problems only
#: degraded             pass@k fell, and pass@1 fell significantly too
#: format               pass@k fell, but unparsed or misread samples explain it
#: guessing             pass@k fell, but false accepts at the base would explain it
#: mode_collapse        no unexplained fall of pass@k, but correct responses outside the dominant mode became rarer
#: selected             the base's samples selected the problems: no conclusion
#: lost_at_steps        no label above applies to the late checkpoints together, but single ones lost pass@k
#: no_loss              pass@k fell by no more than ``rule.MARGIN`` at any k
#: inconclusive         no other label applies
Label = Literal[
    "over_sharpened",
    "over_sharpened_here",
    "degraded",
    "format",
    "guessing",
    "mode_collapse",
    "selected",
    "lost_at_steps",
    "no_loss",
    "inconclusive",
]
#: Label of a verdict. ``no_verdict``: nothing could be compared, or the base's samples selected the problems.
VerdictLabel = Label | Literal["no_verdict"]
#: coverage_lost  pass@k, or correct answers outside the dominant mode, fell, without another explanation
#: no_loss        no fall of more than the margin in the population of the problems
#: not_shown      neither of these, or a fall with another possible explanation
Heading = Literal["coverage_lost", "no_loss", "not_shown", "no_verdict"]

#: Heading of every label. A label also names the test that decided.
HEADINGS: Mapping[VerdictLabel, Heading] = {
    "over_sharpened": "coverage_lost",
    "over_sharpened_here": "coverage_lost",
    "degraded": "coverage_lost",
    "mode_collapse": "coverage_lost",
    "lost_at_steps": "coverage_lost",
    "no_loss": "no_loss",
    "format": "not_shown",
    "guessing": "not_shown",
    "inconclusive": "not_shown",
    "selected": "no_verdict",
    "no_verdict": "no_verdict",
}
TITLES: Mapping[Heading, str] = {
    "coverage_lost": "Coverage lost",
    "no_loss": "No loss (within 2 points)",
    "not_shown": "Not shown",
    "no_verdict": "No verdict",
}
#: The kind is "whole problems" if significantly lost problems cause at least this share of the fall.
MOST_OF_FALL = 0.5

Where = Literal["window", "single checkpoints"]
Scope = Literal["population", "these problems"]
PassAt1 = Literal["up", "down", "open"]
Kind = Literal["whole problems", "modes", "diffuse"]
ExplanationName = Literal["answer style", "unparsed samples", "false accepts", "equal loss on all problems"]


@dataclass(frozen=True, kw_only=True)
class OtherExplanation:
    """Another explanation of a fall and the ``share`` of the fall that it could explain (0 to 1).

    It explains the fall if ``condition`` is true. ``is_enough``: the data do not exclude that it explains the fall.
    """

    name: ExplanationName
    share: float
    condition: str
    is_enough: bool


@dataclass(frozen=True, kw_only=True)
class Attributes:
    """Attributes of a verdict.

    Attributes:
        where: The late window as a whole, or single checkpoints; ``steps`` are their ranges of steps (first, last).
        scope: The population that the problems were sampled from, or these problems alone.
        pass_at_1: "up" or "down" if the 95 % interval of its change is above or below 0, else "open". Also "open" if it
            fell as graded only, and not by another reading of the same samples.
        kind: Kind of loss: whole problems, modes, or diffuse; None without a loss, or for single checkpoints.
        change: Change of pass@k at the ``k`` where it is lowest, with its 95 % interval (probabilities). It is what
            remains of a loss if the answer style changed or more samples are unparsed.
        explanations: Other explanations of a fall, the largest share first.
    """

    where: Where
    steps: tuple[tuple[int, int], ...]
    scope: Scope
    pass_at_1: PassAt1
    kind: Kind | None
    k: int | None
    change: float | None
    low: float | None
    high: float | None
    explanations: tuple[OtherExplanation, ...]


#: Fields of an ``Explanation`` that ``rank_explanations`` uses.
EXPLANATION_FIELDS = ("format", "format_most", "guess_rate", "guess_rate_allowed", "even_loss")


def rank_explanations(
    label: VerdictLabel,
    *,
    is_misread: bool = False,
    misread: float | None = None,
    format: float | None = None,
    format_most: float | None = None,
    guess_rate: float | None = None,
    guess_rate_allowed: float = 0.0,
    even_loss: float | None = None,
) -> tuple[OtherExplanation, ...]:
    """Return other explanations of a fall.

    Those that the data do not exclude are first, and within both groups the largest shares. ``is_misread``: a lenient
    reader of the same samples finds no fall. ``misread``: the share of the fall that this reader does not find. The
    other parameters are fields of an ``Explanation``.

    >>> [(one.name, one.is_enough) for one in rank_explanations("degraded", guess_rate=0.02, even_loss=0.8)]
    [('false accepts', False), ('equal loss on all problems', False)]
    """
    explanations = []
    if is_misread:
        condition = "a lenient reader of the same samples finds no fall"
        explanations.append(OtherExplanation(name="answer style", share=1.0, condition=condition, is_enough=True))
    elif misread:
        condition = "the grades of a lenient reader are right"
        explanations.append(OtherExplanation(name="answer style", share=misread, condition=condition, is_enough=False))
    if format is not None and format_most:
        condition = "unparsed samples are correct as often as parsed ones"
        is_enough = label == "format" and not is_misread
        explanations.append(
            OtherExplanation(name="unparsed samples", share=format, condition=condition, is_enough=is_enough)
        )
    if guess_rate is not None:
        condition = f"{100 * guess_rate:.2g} % of the base's wrong answers were accepted, and none later"
        is_enough = guess_rate <= guess_rate_allowed or label == "guessing"
        explanations.append(OtherExplanation(name="false accepts", share=1.0, condition=condition, is_enough=is_enough))
    if even_loss is not None:
        condition = "every problem lost the same share of its correct samples"
        explanations.append(
            OtherExplanation(name="equal loss on all problems", share=even_loss, condition=condition, is_enough=False)
        )
    return tuple(sorted(explanations, key=lambda one: (not one.is_enough, -one.share)))
