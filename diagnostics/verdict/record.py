"""Record of the verdict on a series: label, sentence, and test results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal

from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.verdict.explanations import Cause
from oversharp.diagnostics.verdict.headings import (
    EXPLANATION_FIELDS,
    HEADINGS,
    MOST_OF_FALL,
    TITLES,
    Attributes,
    Heading,
    Kind,
    PassAt1,
    Scope,
    VerdictLabel,
    rank_explanations,
)
from oversharp.diagnostics.verdict.recommendation import Recommendation
from oversharp.diagnostics.verdict.steps import Accuracy, ranges
from oversharp.diagnostics.verdict.words.numbers import bounds_text, ranges_text, signed_text

#: Labels of a loss, or of an answer format that hides whether there is one.
POSITIVE: tuple[VerdictLabel, ...] = (
    "over_sharpened",
    "over_sharpened_here",
    "degraded",
    "format",
    "mode_collapse",
    "lost_at_steps",
)

#: Suffix of the title *Coverage lost*, by the change of pass@1.
_PASS_AT_1_TITLES: Mapping[PassAt1, str] = {"up": " (over-sharpened)", "down": " (degraded)", "open": ""}


@dataclass(frozen=True, kw_only=True)
class ChangeAtK:
    """pass@k of base and late window, and its paired change with 95 % interval; probabilities."""

    k: int
    base: float
    late: float
    change: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its 95 % interval. A value or bound outside the range of the data is None."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Shares of a checkpoint's samples that may look like lost modes but are not.

    These samples were truncated before an answer, unparsed, ambiguous, or timed out in grading. ``truncated`` is
    relative to the samples with a known finish reason; None if there are none.
    """

    step: int
    checkpoint: str
    truncated: float | None
    not_parsed: float
    timed_out: float
    ambiguous: float | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A tested statement and its result.

    Attributes:
        null: Null hypothesis.
        scope: "these problems", or "population" (from which the problems were sampled).
        holds: Whether ``p`` is at most ``level`` and ``why`` is None.
        p: p value; None if the claim could not be tested.
        size: Change of pass@k, a probability; for ``some problem lost`` the share of lost problems.
        otherwise: Other possible explanations of the data.
        why: Why the claim could not be tested, or why it does not hold at any ``p``, as with too few problems.
    """

    name: str
    null: str
    scope: str
    level: float
    holds: bool
    p: float | None
    size: Estimate | None = None
    otherwise: tuple[str, ...] = ()
    why: str | None = None


#: Result of the comparison of a run with its base at lower temperatures.
SharpeningLabel = Literal["better", "sharpening_only", "worse", "not_shown"]


@dataclass(frozen=True, kw_only=True)
class Sharpening:
    """The late checkpoints compared with the base at lower temperatures; in probability.

    The ``value`` of ``gain``, ``loss`` and ``share`` is None if no sampled temperature has an equal pass@k or pass@1.

    Attributes:
        rise: Change of pass@1.
        gain: pass@1 minus that of the base at the lower temperature with the same pass@k.
        loss: pass@k minus that of the base at the lower temperature with the same pass@1.
        share: Share of the rise that a lower temperature gives too.
        read: Part of the rise from samples that are parsed now and were not before; None if unknown.
    """

    label: SharpeningLabel
    k: int
    rise: Estimate
    gain: Estimate
    loss: Estimate
    share: Estimate
    read: float | None = None


@dataclass(frozen=True, kw_only=True)
class StepClaim:
    """Result of one checkpoint: lost, kept, or neither. Changes are probabilities.

    Attributes:
        lost: Whether pass@k of these problems fell significantly.
        kept: Whether pass@k fell by less than 2 points at every k.
        p: p value for these problems, adjusted for all checkpoints.
        k: The k with the lowest change of pass@k relative to its standard error.
        change: Change of pass@k at ``k``. Its 95 % interval from ``low`` to ``high`` is for the population, and
            simultaneous over all checkpoints and k.
        cause: Another explanation of a loss: "format", "guessing", "selection", or "unread" if too few samples were
            parsed; None if none applies.
        is_of_population: Whether the loss is also significant in the population of the problems.
        p_population: p value for the population, adjusted for all checkpoints.
    """

    step: int
    checkpoint: str
    lost: bool
    kept: bool
    p: float
    k: int
    change: float
    low: float
    high: float
    cause: Cause | None = None
    is_of_population: bool = False
    p_population: float | None = None


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A checkpoint without a result, and the reason. ``step`` is None if the audit never contained it."""

    checkpoint: str
    step: int | None
    why: str


@dataclass(frozen=True, kw_only=True)
class LenientReading:
    """Mean pass@``k`` of base and window by a lenient reader of the same samples.

    ``strict_base`` and ``strict_late`` are pass@k as graded. ``rise`` is the change of the share of samples that only
    the lenient reader accepts, a probability. ``label`` is the verdict's label by the lenient counts. ``explains``
    means that they are the reason for the label "format".
    """

    k: int
    base: float
    late: float
    strict_base: float
    strict_late: float
    rise: float
    label: VerdictLabel
    explains: bool


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Other explanations of the fall, as shares.

    ``format``, ``format_most`` and ``even_loss`` are shares of the fall, or None if they do not apply.

    Attributes:
        guess_rate: Smallest share of the base's wrong responses that would explain the fall if the grader accepted
            them at the base only; None if it is above one half.
        guess_rate_allowed: Share of false accepts that the verdict allows for.
        guess_source: Source of that share.
        format: Share from unparsed samples, if they are correct as often as the parsed ones of their problem.
        format_most: Share from unparsed samples, if all in excess of the base's are correct.
        even_loss: Share from a loss of the same share of correct samples on every problem.
        step: Step of the single checkpoint with the fall; None for the window.
    """

    guess_rate: float | None
    guess_rate_allowed: float
    guess_source: str
    format: float | None = None
    format_most: float | None = None
    even_loss: float | None = None
    step: int | None = None


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """Size and cost of an audit that detects a fall of ``drop`` (probability) with 80 % power.

    ``n`` is the number of samples per problem and checkpoint, ``n_base`` that of the base. ``tokens`` is None if the
    length of samples is unknown.
    """

    drop: float
    n_problems: int
    n: int
    n_base: int
    tokens: float | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Verdict of an audit on one series.

    Attributes:
        why: Why there is no verdict.
        n_within_reach: Number of problems that the base solved.
        n_late: Samples per problem, summed over the window; ``n_base`` are those of the base.
        window: Steps of the last third of the checkpoints. The tests pool their samples; ``changes`` and ``k_star`` are
            means over them.
        k_most: The verdict is valid for k = 1 … ``k_most``.
        size_given_label: Largest fall of pass@k, corrected for the selection of significant falls.
        k_star: The smallest k from which pass@k of the window stays below the base.
        steps: Results of the single checkpoints; ``left_out`` are those without a result.
        lenient: Result by the lenient reader; None if the style of the answers did not change.
        sharpening: None if the base was not sampled at lower temperatures.
        detected_by: Step at which a loss was first significant; it began at ``decline_began``.
        caveats: Sentences about what may mislead; ``warnings`` are those about the origin of problems and samples.
        shipping: The checkpoint to ship, among all comparable series; None in older verdicts.
        repaired: Whether the steps are weights between the base and a checkpoint.
        accuracies: Accuracy of base and compared checkpoints; empty unless each problem has one response.
        share_by_lost_problems: Share of the largest fall from problems whose own fall is significant.
        selection_p: p value of "the base's samples did not select the problems"; None if a problem was never solved.
    """

    series: str
    label: VerdictLabel
    sentence: str
    why: str | None = None
    p_exact: float | None = None
    p_population: float | None = None
    p_minority: float | None = None
    modes_collapsed: bool = False
    n_problems: int = 0
    n_within_reach: int = 0
    n_minority_problems: int = 0
    n_base: int = 0
    n_late: int = 0
    window: tuple[int, ...] = ()
    k_most: int | None = None
    changes: tuple[ChangeAtK, ...] = ()
    least_change: float | None = None
    size_given_label: float | None = None
    k_star: Estimate | None = None
    claims: tuple[Claim, ...] = ()
    steps: tuple[StepClaim, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    explanation: Explanation | None = None
    lenient: LenientReading | None = None
    sharpening: Sharpening | None = None
    detected_by: int | None = None
    decline_began: Estimate | None = None
    rates: tuple[Rates, ...] = ()
    graders: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    remedy: Remedy | None = None
    shipping: Recommendation | None = None
    repaired: bool = False
    accuracies: tuple[Accuracy, ...] = ()
    share_by_lost_problems: float | None = None
    selection_p: float | None = None

    __repr__ = short_repr

    @property
    def heading(self) -> Heading:
        """Heading of the label."""
        return HEADINGS[self.label]

    @property
    def title(self) -> str:
        """Text of the heading, with the change of pass@1 or the steps."""
        title = TITLES[self.heading]
        match self.label:
            case "over_sharpened" | "over_sharpened_here" | "degraded":
                return f"{title}{_PASS_AT_1_TITLES[self._pass_at_1]}"
            case "mode_collapse":
                return f"{title} (modes)"
            case "lost_at_steps":
                return f"{title} at {self.steps_text(self.steps_of_label())}"
            case "format" | "guessing":
                return f"{title}, although a fall was found"
        lost = [step for step in self.steps if step.lost and step.cause is None]
        if self.label in ("no_loss", "inconclusive") and lost:
            return f"{title} at the {'far ' if self.repaired else ''}end, coverage lost at {self.steps_text(lost)}"
        return title

    @property
    def attributes(self) -> Attributes:
        """Place, scope, size and kind of the change, and other explanations of a fall."""
        at_steps = self.steps_of_label() if self.is_of_steps else []
        worst = min(self.changes, key=lambda change: change.change, default=None)
        step = min(at_steps, key=lambda step: step.change, default=None)
        severe = step or worst
        window = ((self.window[0], self.window[-1]),) if self.window else ()
        steps = {step.step for step in at_steps}
        other = self.explanation
        return Attributes(
            where="single checkpoints" if at_steps else "window",
            steps=self._ranges([step.step in steps for step in self.steps]) if at_steps else window,
            scope=self._scope,
            pass_at_1=self._pass_at_1,
            kind=self._kind,
            k=None if severe is None else severe.k,
            change=None if severe is None else severe.change,
            low=None if severe is None else severe.low,
            high=None if severe is None else severe.high,
            explanations=rank_explanations(
                self.label,
                is_misread=self.lenient is not None and self.lenient.explains,
                **({} if other is None else {name: getattr(other, name) for name in EXPLANATION_FIELDS}),
            ),
        )

    @property
    def _pass_at_1(self) -> PassAt1:
        if self.label == "degraded":
            return "down"
        first = next((change for change in self.changes if change.k == 1), None)
        if first is None or first.low is None or first.high is None:
            return "open"
        return "up" if first.low > 0 else "down" if first.high < 0 else "open"

    @property
    def _scope(self) -> Scope:
        if self.is_of_steps:
            return "population" if all(step.is_of_population for step in self.steps_of_label()) else "these problems"
        if self.label in ("over_sharpened", "no_loss"):
            return "population"
        fell = any(claim.holds for claim in self.claims if claim.name == "pass@k fell")
        return "population" if self.label == "degraded" and fell else "these problems"

    @property
    def _kind(self) -> Kind | None:
        if self.label == "mode_collapse":
            return "modes"
        if self.heading != "coverage_lost":
            return None
        return "whole problems" if (self.share_by_lost_problems or 0.0) >= MOST_OF_FALL else "diffuse"

    @property
    def is_of_steps(self) -> bool:
        """Return whether the label is about single checkpoints of the window."""
        return self.label == "lost_at_steps" or (self.explanation is not None and self.explanation.step is not None)

    def steps_of_label(self) -> list[StepClaim]:
        """Return the lost checkpoints of the window that the label is about."""
        if not self.window:
            return []
        cause = None if self.label == "lost_at_steps" else self.label
        return [step for step in self.steps if step.lost and step.cause == cause and step.step >= self.window[0]]

    def steps_text(self, claims: Sequence[StepClaim]) -> str:
        """Return the steps of some checkpoints as text, neighbours as a range."""
        steps = {claim.step for claim in claims}
        return self.places_text(self._ranges([claim.step in steps for claim in self.steps]))

    def _ranges(self, marked: Sequence[bool]) -> tuple[tuple[int, int], ...]:
        return ranges(marked, [claim.step for claim in self.steps])

    def places_text(self, places: Sequence[tuple[int, int]]) -> str:
        """Return ranges of steps as text, for a repaired series as values of λ."""
        return ranges_text(places, repaired=self.repaired)

    @property
    def positive(self) -> bool:
        """Return whether the label is a loss, or *format*."""
        return self.label in POSITIVE

    @property
    def lost_ranges(self) -> tuple[tuple[int, int], ...]:
        """Ranges of neighbouring checkpoints that lost pass@k, as (first, last) step."""
        return self._ranges([claim.lost for claim in self.steps])

    @property
    def kept_ranges(self) -> tuple[tuple[int, int], ...]:
        """Ranges of neighbouring checkpoints that kept pass@k to within 2 points, as (first, last) step."""
        return self._ranges([claim.kept for claim in self.steps])

    def to_json(self) -> str:
        """Return all fields as JSON for ``from_json``, with heading, title and attributes."""
        derived = {"heading": self.heading, "title": self.title, "attributes": asdict(self.attributes)}
        return json.dumps({**asdict(self), **derived}, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """Return the verdict that ``to_json`` wrote. Raises ``ValueError`` for any other text."""
        fields = json.loads(text)
        if isinstance(fields, dict):
            for name in ("heading", "title", "attributes"):  # derived from the others
                fields.pop(name, None)
        try:
            nested = {
                **{name: tuple(fields[name]) for name in ("window", "graders", "caveats", "warnings")},
                "changes": tuple(ChangeAtK(**change) for change in fields["changes"]),
                "k_star": None if fields["k_star"] is None else Estimate(**fields["k_star"]),
                "decline_began": None if fields["decline_began"] is None else Estimate(**fields["decline_began"]),
                "rates": tuple(Rates(**rates) for rates in fields["rates"]),
                "claims": tuple(_claim(**claim) for claim in fields["claims"]),
                "steps": tuple(StepClaim(**step) for step in fields["steps"]),
                "left_out": tuple(LeftOut(**left) for left in fields["left_out"]),
                "accuracies": tuple(Accuracy(**accuracy) for accuracy in fields["accuracies"]),
                "explanation": None if fields["explanation"] is None else Explanation(**fields["explanation"]),
                "lenient": None if fields.get("lenient") is None else LenientReading(**fields["lenient"]),
                "sharpening": _sharpening(fields.get("sharpening")),
                "remedy": None if fields["remedy"] is None else Remedy(**fields["remedy"]),
                "shipping": Recommendation.from_fields(shipping) if (shipping := fields.get("shipping")) else None,
            }
            return cls(**{**fields, **nested})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a verdict: {error}") from error

    def _repr_html_(self) -> str:
        """Notebook display: the sentence, pass@k of base and window, and the caveats."""
        rows = "".join(
            f"<tr><td>{change.k}</td><td>{change.base:.3f}</td><td>{change.late:.3f}</td>"
            f"<td>{signed_text(change.change)}{bounds_text(change.low, change.high)}</td></tr>"
            for change in self.changes
        )
        table = (
            "<table><thead><tr><th>k</th><th>pass@k, base</th><th>pass@k, late</th><th>change, points</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )
        caveats = "".join(f"<li>{escape(caveat)}</li>" for caveat in self.caveats)
        return (
            f"<div><p><strong>{escape(self.series)}</strong> {escape(self.sentence)}</p>"
            f"{table if rows else ''}{f'<ul>{caveats}</ul>' if caveats else ''}</div>"
        )


def _claim(size: Mapping[str, float] | None, otherwise: list[str], **fields: Any) -> Claim:
    return Claim(size=None if size is None else Estimate(**size), otherwise=tuple(otherwise), **fields)


def _sharpening(fields: Mapping[str, Any] | None) -> Sharpening | None:
    if fields is None:
        return None
    estimates = {name: Estimate(**fields[name]) for name in ("rise", "gain", "loss", "share")}
    return Sharpening(**{**fields, **estimates})
