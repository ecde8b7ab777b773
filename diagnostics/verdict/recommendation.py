"""Record of the checkpoint to ship, with the results of every other checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from oversharp.diagnostics.records.cells import short_repr

#: Role of a checkpoint. candidate: eligible, but not recommended; out: not eligible.
Role = Literal["recommended", "candidate", "out"]
_ELIGIBLE: Sequence[Role] = ("recommended", "candidate")
#: Why a checkpoint is out.
#: band      pass@k fell significantly by the simultaneous band
#: verdict   the verdict's test found a loss in the population
#: estimate  the estimated and the expected fall of pass@k are too large
#: reach     a control has too few samples for the largest k
#: expected  the posterior expectation of the fall of pass@k is too large
#: veto      pass@k fell significantly on the held-out problems
OutBy = Literal["band", "verdict", "estimate", "reach", "expected", "veto"]


@dataclass(frozen=True, kw_only=True)
class BandedChange:
    """Change of pass@``k`` since the base (probability), with a 95 % band over all compared checkpoints and k."""

    k: int
    change: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class ShippingStep:
    """A checkpoint as an option to ship, or a control of it at another temperature.

    Changes are relative to the base, on the problems that choose. They are None at the base and if unknown.

    Attributes:
        role: None if there is no recommendation, with the reason in ``why``.
        may_be_best: No candidate has a significantly higher pass@1. With 95 % confidence the best one is among these.
        pass_at_1: Probability.
        first: Change of pass@1.
        worst: Change of pass@k at the k with the lowest estimate.
        loss_at_most: Upper bound of the fall of pass@k over all k, in probability.
        expected_gain: Posterior mean of the change of pass@1, shrunk over the checkpoints.
        expected_loss: Posterior mean of the largest fall of pass@k over all k, in probability.
        better: Posterior probability that pass@1 is above the base's.
        why: Why it is out, or why there is no recommendation.
        out_by: Why it is out, as a code.
        path: Directory of the weights when they were last read; None if unknown.
        temperature: None for the audit's. ``is_base`` is true at every temperature.
    """

    series: str
    step: int
    checkpoint: str
    is_base: bool
    role: Role | None
    may_be_best: bool = False
    pass_at_1: float | None = None
    first: BandedChange | None = None
    worst: BandedChange | None = None
    loss_at_most: float | None = None
    expected_gain: float | None = None
    expected_loss: float | None = None
    better: float | None = None
    why: str | None = None
    out_by: OutBy | None = None
    path: str | None = None
    temperature: float | None = None

    @property
    def is_own_base(self) -> bool:
        """Return whether it is the base at the audit's temperature, to which all changes are relative."""
        return self.is_base and self.temperature is None

    @classmethod
    def from_fields(cls, first: Any, worst: Any, **fields: Any) -> ShippingStep:
        """Return the step from its JSON fields."""
        return cls(first=_change(first), worst=_change(worst), **fields)


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """Bounds for the recommended checkpoint, valid together at ``confidence`` for the population of the problems.

    Attributes:
        gain: Lower bound of the change of pass@1, in probability.
        loss: Upper bound of the fall of pass@k at every k, in probability.
        k: The k with that bound.
        base_pass_at_1: Measured pass@1 of the base.
        pass_at_1: Measured pass@1 of the checkpoint.
        over: The comparisons that the band covers.
        n_units: Number of problems, or of clusters.
    """

    gain: float
    loss: float
    k: int
    base_pass_at_1: float
    pass_at_1: float
    over: str
    n_units: int
    units: Literal["problems", "clusters"]
    confidence: float = 0.95


@dataclass(frozen=True, kw_only=True)
class TossUp:
    """The eligible checkpoint with the highest expected pass@1, if it may be no better than the base.

    Attributes:
        series: Its series.
        step: Its step.
        checkpoint: Its label.
        is_base: Whether it is the base at another temperature.
        temperature: Its temperature, None for that of the audit.
        gain: Measured change of its pass@1 since the base, in probability.
        expected_gain: Posterior mean of that change, shrunk over the checkpoints because it is the highest of them.
        better: Posterior probability that its pass@1 is above the base's.
        needed: Posterior probability needed to recommend it.
    """

    series: str
    step: int
    checkpoint: str
    is_base: bool
    temperature: float | None
    gain: float
    expected_gain: float
    better: float
    needed: float


@dataclass(frozen=True, kw_only=True)
class BeyondSharpening:
    """pass@1 above that of the base at the lower temperature with the same pass@``k`` (probability, 95 %).

    ``gain`` and its bounds are None if unknown. ``is_better``: significantly above 0 by the verdict's test. Not
    corrected for the choice of the checkpoint.
    """

    k: int
    gain: float | None
    low: float | None
    high: float | None
    is_better: bool


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """Checkpoint to ship, and its temperature, among series that share base and problems.

    Attributes
    ----------
    series
        Names of the compared series.
    sentence
        The recommendation in words.
    recommended
        None if there is no recommendation.
    why
        Why there is no recommendation, or why it is the base (at any temperature); None for a trained checkpoint.
    steps
        All checkpoints, the base first, each followed by its controls at other temperatures.
    guarantee
        None for the base at the audit's temperature, and if ``why_no_guarantee`` has a reason.
    why_no_guarantee
        Why a recommended checkpoint has no guarantee.
    ks
        Compared k.
    allowed_loss
        Fall of pass@k that does not exclude a checkpoint, in probability.
    held_out
        Whether only ``n_choosing`` of the ``n_problems`` problems choose, and the others give the guarantee.
    n_problems
        Number of problems.
    n_choosing
        Number of problems that choose.
    steps_of
        Problems that the numbers in ``steps`` are computed on.
    beyond
        pass@1 of the choice compared with the base at the lower temperature with the same pass@k.
    without_training
        Sentence that the base at a lower temperature may be as good; None if it was not sampled or is not as good.
    cannot_tell
        Sentence that these problems are too few for any checkpoint to be eligible; None if they are not.
    toss_up
        The checkpoint with the highest expected pass@1, if the base is recommended because it may be as good.
    """

    series: tuple[str, ...]
    sentence: str = ""
    recommended: ShippingStep | None = None
    why: str | None = None
    steps: tuple[ShippingStep, ...] = ()
    guarantee: Guarantee | None = None
    why_no_guarantee: str | None = None
    ks: tuple[int, ...] = ()
    allowed_loss: float = 0.0
    held_out: bool = False
    n_problems: int = 0
    n_choosing: int = 0
    steps_of: Literal["all problems", "the problems that choose"] = "all problems"
    beyond: BeyondSharpening | None = None
    without_training: str | None = None
    cannot_tell: str | None = None
    toss_up: TossUp | None = None

    __repr__ = short_repr

    @property
    def n_certifying(self) -> int:
        """Number of problems of the guarantee."""
        return self.n_problems - self.n_choosing if self.held_out else self.n_problems

    @property
    def best_trained(self) -> ShippingStep | None:
        """The eligible trained checkpoint with the highest expected pass@1, at the audit's temperature."""
        eligible = [step for step in (self.recommended, *self.steps) if step and step.role in _ELIGIBLE]
        trained = [step for step in eligible if not step.is_base and step.temperature is None]
        return max(trained, key=lambda step: (step.expected_gain or 0.0, step.pass_at_1 or 0.0), default=None)

    @property
    def alternatives(self) -> tuple[ShippingStep, ...]:
        """Candidates whose pass@1 may be as high."""
        return tuple(step for step in self.steps if step.may_be_best and step.role == "candidate")

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Recommendation:
        """Return the recommendation from fields of ``dataclasses.asdict``. Raises ``KeyError`` or ``TypeError``."""
        chosen, guarantee, beyond = fields["recommended"], fields["guarantee"], fields.get("beyond")
        toss_up = fields.get("toss_up")
        nested = {
            "series": tuple(fields["series"]),
            "recommended": None if chosen is None else ShippingStep.from_fields(**chosen),
            "steps": tuple(ShippingStep.from_fields(**step) for step in fields["steps"]),
            "guarantee": None if guarantee is None else Guarantee(**guarantee),
            "ks": tuple(fields["ks"]),
            "beyond": None if beyond is None else BeyondSharpening(**beyond),
            "toss_up": None if toss_up is None else TossUp(**toss_up),
        }
        return cls(**{**fields, **nested})

    def _repr_html_(self) -> str:
        """Return the sentence and the table of checkpoints, in percentage points, for a notebook."""
        rows = "".join(
            f"<tr><td>{escape(step.series)}</td><td>{step.step}</td>"
            f"<td>{'' if step.temperature is None else f'{step.temperature:g}'}</td><td>{step.role or ''}</td>"
            f"<td>{_points(step.first)}</td><td>{_points(step.worst)}</td><td>{escape(step.why or '')}</td></tr>"
            for step in self.steps
        )
        head = "".join(f"<th>{name}</th>" for name in ("series", "step", "T", "role", "pass@1", "worst pass@k", "why"))
        return f"<div><p>{escape(self.sentence)}</p><table><thead><tr>{head}</tr></thead>{rows}</table></div>"


def _change(fields: Mapping[str, Any] | None) -> BandedChange | None:
    return None if fields is None else BandedChange(**fields)


def _points(change: BandedChange | None) -> str:
    return "" if change is None else f"{100 * change.change:+.1f} at k = {change.k}"
