"""The verdict on a series: one label, one sentence, and everything that they rest on."""

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

#: Labels that say something was lost, or that the format of the answers hides whether it was.
POSITIVE: tuple[VerdictLabel, ...] = (
    "over_sharpened",
    "over_sharpened_here",
    "degraded",
    "format",
    "mode_collapse",
    "lost_at_steps",
)


#: What follows the title of a lost window, by what happened to pass@1.
_PASS_AT_1_TITLES: Mapping[PassAt1, str] = {"up": " (over-sharpened)", "down": " (degraded)", "open": ""}


@dataclass(frozen=True, kw_only=True)
class ChangeAtK:
    """pass@k of the base and of the late window, and their paired difference with its 95 % interval; probabilities."""

    k: int
    base: float
    late: float
    change: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with the bounds of its 95 % interval; None where a bound, or the number, lies outside the data."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Shares of a checkpoint's samples that look like lost modes and are not.

    Cut off before they had answered, not parsed, ambiguous, out of time. ``truncated`` is of those samples that tell
    why they ended, None where none does; ``ambiguous`` is None in verdicts of before there was that state.
    """

    step: int
    checkpoint: str
    truncated: float | None
    not_parsed: float
    timed_out: float
    ambiguous: float | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement that a verdict was asked for, and what the data say of it.

    ``holds`` where ``p``, how likely such data are under ``null``, is at most ``level``; ``p`` is None where the claim
    could not be tested, and ``why`` says why; it also says why a claim is not made of too few problems, whatever
    ``p`` is. ``size`` is a change of pass@k in probability; of ``some problem lost`` the share of the problems that
    were. ``otherwise`` are other causes that would leave the same data behind.
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


#: Whether a run is better than drawing its base sharper.
SharpeningLabel = Literal["better", "sharpening_only", "worse", "not_shown"]


@dataclass(frozen=True, kw_only=True)
class Sharpening:
    """The late checkpoints against the base drawn at lower temperatures; changes in probability.

    ``gain``: pass@1 beyond that of the colder base with the same pass@k; ``loss``: pass@k against that of the colder
    base with the same pass@1; ``share``: of the rise of pass@1 by ``rise``, what the colder base has too; their
    ``value`` is None where the colder base does not reach. ``read``: of the rise, what comes of samples that can be
    read now and could not before; None where nobody knows which are read.
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
    """What is said of one checkpoint: ``lost`` pass@k somewhere, ``kept`` it to within 2 points everywhere, or neither.

    ``change`` of pass@k (probability) at the ``k`` where it is lowest against its error, with a 95 % interval that
    holds at all checkpoints and k at once. ``p`` is adjusted for all checkpoints. ``cause``: what else explains a loss,
    "format", "guessing", or "unread" where too little was read to tell; None where nothing that is known of does.
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


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A checkpoint of which nothing is said, and why. ``step`` is None where it never came into the audit."""

    checkpoint: str
    step: int | None
    why: str


@dataclass(frozen=True, kw_only=True)
class LenientReading:
    """What a lenient reader of the same samples sees at ``k``: mean pass@k of base and window, by both readers.

    ``rise`` is the change of the share of samples that it alone accepts, a probability. ``label`` is the verdict by its
    counts; ``explains`` says whether it is the reason of the label "format".
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
    """What else would explain the fall, in shares.

    ``guess_rate``: of wrong responses, the least share that, accepted at the base alone, would leave such a fall; None
    where half would not. ``guess_rate_allowed`` is what the verdict had to reckon with, by ``guess_source``. Parts of
    the fall are ``format`` and ``format_most``, what unread samples explain if they are as often right as the read ones
    of their problem, and if all of those that are more than the base's are right; and ``even_loss``, what a loss of
    the same share of correct answers everywhere does. None where there is nothing of the kind. ``step`` is the single
    checkpoint it is about; None for the window.
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
    """What would settle it: the audit that finds a fall of ``drop`` (probability) with 80 % power, and its cost.

    ``tokens`` is None where nobody knows how long the samples were.
    """

    drop: float
    n_problems: int
    n: int
    n_base: int
    tokens: float | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What an audit concludes about one series.

    ``window`` are the steps of the late checkpoints, the last third: the tests pool their samples, ``changes`` and
    ``k_star`` are means over them. ``n_base`` and ``n_late`` are samples per problem, the second summed over the
    window. The verdict holds for k = 1 … ``k_most``. ``k_star`` is where pass@k of the window falls below the base for
    good. ``size_given_label`` is how far pass@k fell where it fell most, with what only clear falls being called a loss
    adds to it taken away. ``sharpening`` is None where the base was not drawn at a lower temperature. ``claims`` are
    all that was tested, ``steps`` what is said of every single checkpoint, ``left_out`` those of which nothing is.
    ``detected_by`` and ``decline_began`` (steps) are given after a positive verdict alone. ``caveats`` are sentences
    about what may mislead in this very series, ``warnings`` those of them about how its problems and samples came to
    be. ``lenient`` is given where the style of the answers changed. ``shipping`` says which checkpoint to ship, of all
    series that can be compared; None in verdicts of before. ``repaired``: the series is weights between the base and a
    checkpoint. ``accuracies``: of base and compared checkpoints where each problem has one response; empty otherwise.
    ``share_by_lost_problems`` is the part of the largest fall by problems that were each lost significantly.
    ``selection_p``: p value of "the base's samples did not choose the problems"; None where a problem was never solved.
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
        """The heading; the label says which test decided."""
        return HEADINGS[self.label]

    @property
    def title(self) -> str:
        """The heading in words, with what happened to pass@1, or where."""
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
        """Where, on which problems, how much, of which kind, and what else could explain a fall."""
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
        if self.label in ("over_sharpened", "no_loss") or self.is_of_steps:
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
        """Whether the label is about single checkpoints of the window, not about the window as a whole."""
        return self.label == "lost_at_steps" or (self.explanation is not None and self.explanation.step is not None)

    def steps_of_label(self) -> list[StepClaim]:
        """The lost checkpoints of the window with the label's cause, or with none."""
        if not self.window:
            return []
        cause = None if self.label == "lost_at_steps" else self.label
        return [step for step in self.steps if step.lost and step.cause == cause and step.step >= self.window[0]]

    def steps_text(self, told: Sequence[StepClaim]) -> str:
        """Some of its checkpoints in words, neighbours as a range."""
        steps = {one.step for one in told}
        return self.places_text(self._ranges([one.step in steps for one in self.steps]))

    def _ranges(self, marked: Sequence[bool]) -> tuple[tuple[int, int], ...]:
        return ranges(marked, [one.step for one in self.steps])

    def places_text(self, found: Sequence[tuple[int, int]]) -> str:
        """Ranges of its steps, (first, last), in words: of a repaired series as the λ that they are."""
        return ranges_text(found, repaired=self.repaired)

    @property
    def positive(self) -> bool:
        """Whether something was lost."""
        return self.label in POSITIVE

    @property
    def lost_ranges(self) -> tuple[tuple[int, int], ...]:
        """Neighbouring checkpoints that lost something, as (first, last) step."""
        return ranges([one.lost for one in self.steps], [one.step for one in self.steps])

    @property
    def kept_ranges(self) -> tuple[tuple[int, int], ...]:
        """Neighbouring checkpoints that surely kept pass@k, as (first, last) step."""
        return ranges([one.kept for one in self.steps], [one.step for one in self.steps])

    def to_json(self) -> str:
        """All fields, heading, title and attributes as one JSON object; ``from_json`` gives an equal verdict."""
        derived = {"heading": self.heading, "title": self.title, "attributes": asdict(self.attributes)}
        return json.dumps({**asdict(self), **derived}, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """The verdict that ``to_json`` wrote. Raises ``ValueError`` for anything else."""
        fields = json.loads(text)
        if isinstance(fields, dict):
            for name in ("heading", "title", "attributes"):  # derived from the others
                fields.pop(name, None)
        try:
            nested = {
                "window": tuple(fields["window"]),
                "changes": tuple(ChangeAtK(**change) for change in fields["changes"]),
                "k_star": None if fields["k_star"] is None else Estimate(**fields["k_star"]),
                "decline_began": None if fields["decline_began"] is None else Estimate(**fields["decline_began"]),
                "rates": tuple(Rates(**rates) for rates in fields["rates"]),
                "graders": tuple(fields["graders"]),
                "claims": tuple(_claim(**claim) for claim in fields["claims"]),
                "steps": tuple(StepClaim(**step) for step in fields["steps"]),
                "left_out": tuple(LeftOut(**one) for one in fields.get("left_out", ())),
                "accuracies": tuple(Accuracy(**one) for one in fields.get("accuracies", ())),
                "explanation": None if fields["explanation"] is None else Explanation(**fields["explanation"]),
                "lenient": None if fields.get("lenient") is None else LenientReading(**fields["lenient"]),
                "sharpening": _sharpening(fields.get("sharpening")),
                "caveats": tuple(fields["caveats"]),
                "warnings": tuple(fields.get("warnings", ())),
                "remedy": None if fields["remedy"] is None else Remedy(**fields["remedy"]),
                "shipping": Recommendation.from_fields(shipping) if (shipping := fields.get("shipping")) else None,
            }
            return cls(**{**fields, **nested})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a verdict: {error}") from error

    def _repr_html_(self) -> str:
        """What a notebook shows: the sentence, pass@k of base and window, and the caveats."""
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
