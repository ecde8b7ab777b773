"""Record of the verdict on a series: label, sentence, and test results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.statistics.forecast.beyond import Beyond
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
from oversharp.diagnostics.verdict.results import (
    ChangeAtK,
    Claim,
    Estimate,
    Explanation,
    LeftOut,
    LenientReading,
    OtherReading,
    Rates,
    Remedy,
    Sharpening,
    StepClaim,
    UntilSolved,
)
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
        remaining: Changes by another reading of the samples: by the lenient reader if the answer style changed, or
            without the effect of unparsed samples if these could explain half of the fall; else None.
        pass_at_1_fell_in_all: Whether a fall of pass@1 is significant by every reading of the samples.
        sharpening: None if the base was not sampled at lower temperatures.
        detected_by: Step at which a loss was first significant; it began at ``decline_began``.
        caveats: Sentences about what may mislead; ``warnings`` are those about the origin of problems and samples.
        shipping: The checkpoint to ship, among all comparable series; None in older verdicts.
        repaired: Whether the steps are weights between the base and a checkpoint.
        accuracies: Accuracy of base and compared checkpoints; empty unless each problem has one response.
        share_by_lost_problems: Share of the largest fall from problems whose own fall is significant.
        until_solved: How a stopping rule determined the numbers of samples, of which ``n_base`` and ``n_late`` are then
            the largest possible; None if all problems have as many.
        beyond: Change of pass@k at twice the number of samples, without effect on the label. None without a verdict,
            and in older ones.
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
    remaining: OtherReading | None = None
    pass_at_1_fell_in_all: bool = True
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
    until_solved: UntilSolved | None = None
    beyond: Beyond | None = None

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
            end = f"{title[0].lower()}{title[1:]} at the {'far ' if self.repaired else ''}end"
            return f"Coverage lost at {self.steps_text(lost)}; {end}"
        return f"{title} up to {self._steps_text}, the end is unknown" if self.is_end_unknown else title

    @property
    def _steps_text(self) -> str:
        return self.places_text([(self.window[-1], self.window[-1])])

    @property
    def is_end_unknown(self) -> bool:
        """Whether pass@k is kept to within 2 points, but a later checkpoint was left out."""
        # unlike the bound, the claim accounts for few problems and dependent samples
        keeps = any(claim.name == "no fall that matters" and claim.holds for claim in self.claims)
        end = self.window[-1] if self.window else 0
        later = any(left.step is None or left.step > end for left in self.left_out)
        return self.label == "inconclusive" and keeps and later

    @property
    def attributes(self) -> Attributes:
        """Place, scope, size and kind of the change, and other explanations of a fall."""
        at_steps = self.steps_of_label() if self.is_of_steps else []
        worst = min(self.changes, key=lambda change: change.change, default=None)
        step = min(at_steps, key=lambda step: step.change, default=None)
        remaining = self.remaining_fall if self.heading == "coverage_lost" else None
        severe = step or remaining or worst
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
                misread=self._share_misread,
                **({} if other is None else {name: getattr(other, name) for name in EXPLANATION_FIELDS}),
            ),
        )

    @property
    def _share_misread(self) -> float | None:
        """Share of the window's largest fall that a lenient reader does not find; None without a fall or a reader."""
        worst = min(self.changes, key=lambda change: change.change, default=None)
        if self.remaining is None or self.remaining.name != "lenient reader" or worst is None or worst.change >= 0:
            return None
        found = [change for change in self.remaining.changes if change.k == worst.k]
        return min(1.0, max(0.0, 1.0 - found[0].change / worst.change)) if found else None

    @property
    def remaining_fall(self) -> ChangeAtK | None:
        """Largest fall by another reading of the same samples; None without one."""
        changes = () if self.remaining is None else self.remaining.changes
        worst = min(changes, key=lambda change: change.change, default=None)
        return None if worst is None or worst.change >= 0 else worst

    @property
    def _pass_at_1(self) -> PassAt1:
        if self.label == "degraded":
            return "down" if self.pass_at_1_fell_in_all else "open"
        first = next((change for change in self.changes if change.k == 1), None)
        if first is None or first.low is None or first.high is None:
            return "open"
        return "up" if first.low > 0 else "down" if first.high < 0 else "open"

    @property
    def _scope(self) -> Scope:
        if self.is_of_steps:
            return "population" if all(step.is_of_population for step in self.steps_of_label()) else "these problems"
        if self.remaining is not None and self.heading == "coverage_lost":
            fall = self.remaining_fall  # what remains must be shown for the population too
            if fall is None or fall.high is None or fall.high >= 0:
                return "these problems"
        if self.label in ("over_sharpened", "no_loss") or self.is_end_unknown:
            return "population"
        fell = any(claim.holds for claim in self.claims if claim.name == "pass@k fell")
        return "population" if self.label == "degraded" and fell else "these problems"

    @property
    def _kind(self) -> Kind | None:
        if self.label == "mode_collapse":
            return "modes"
        if self.heading != "coverage_lost" or self.is_of_steps:
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

    @property
    def sample_numbers(self) -> tuple[str, ...]:
        """Numbers of samples per problem, as parts of a text."""
        drawn = self.until_solved
        if drawn is None:
            return (f"n = {self.n_base:,} base, {self.n_late:,} late",)
        most = f"at most {self.n_base:,} and {self.n_late // len(self.window):,}"
        means = f"mean n = {drawn.mean_base:.0f} base, {drawn.mean_late:.0f} late"
        return (f"sampled until {drawn.enough} correct", means, most)

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
                "remaining": _reading(fields.get("remaining")),
                "sharpening": _sharpening(fields.get("sharpening")),
                "until_solved": UntilSolved(**stopped) if (stopped := fields.get("until_solved")) else None,
                "beyond": Beyond(**beyond) if (beyond := fields.get("beyond")) else None,
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


def _reading(fields: Mapping[str, Any] | None) -> OtherReading | None:
    if fields is None:
        return None
    return OtherReading(**{**fields, "changes": tuple(ChangeAtK(**change) for change in fields["changes"])})


def _sharpening(fields: Mapping[str, Any] | None) -> Sharpening | None:
    if fields is None:
        return None
    estimates = {name: Estimate(**fields[name]) for name in ("rise", "gain", "loss", "share")}
    return Sharpening(**{**fields, **estimates})
