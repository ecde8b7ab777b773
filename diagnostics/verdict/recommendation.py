"""Which checkpoint to ship: the record that says it, with what every other checkpoint would trade."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from oversharp.diagnostics.records.cells import short_repr

#: candidate: not shown to lose more than allowed, and not chosen; out: shown to.
Role = Literal["recommended", "candidate", "out"]
#: How that is shown: surely by the band; by the verdict's own test of the checkpoint; in the estimate alone; not at
#: all, because a control's samples do not reach as far; by the held-out problems.
OutBy = Literal["band", "verdict", "estimate", "reach", "veto"]


@dataclass(frozen=True, kw_only=True)
class BandedChange:
    """The change of pass@``k`` since the base (probability), with a 95 % band over all checkpoints and k compared."""

    k: int
    change: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class ShippingStep:
    """One checkpoint as something to ship, or what a control drew of it: then ``temperature`` is not the audit's.

    ``role`` is None where nothing can be said, and ``why`` says why; of one that is out, ``why`` says what it lost and
    ``out_by`` what shows it.
    ``may_be_best``: nothing that may be shipped surely has a higher pass@1; with 95 % confidence the truly best is one
    of these. ``first`` is the change of pass@1, ``worst`` that of pass@k at the k with the lowest estimate;
    ``loss_at_most`` bounds the fall at every k. All of these are None at the base, from which they count, and where
    they are unknown. ``path`` is where the weights were read last; None where nobody has seen them. ``temperature`` is
    None for the audit's own, ``is_base`` true at every temperature. All numbers are of the problems that choose.
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
    why: str | None = None
    out_by: OutBy | None = None
    path: str | None = None
    temperature: float | None = None

    @property
    def is_own_base(self) -> bool:
        """Whether it is the base as the audit drew it, from which all changes count."""
        return self.is_base and self.temperature is None

    @classmethod
    def from_fields(cls, first: Any, worst: Any, **fields: Any) -> ShippingStep:
        """The step that these fields, as JSON holds them, describe."""
        return cls(first=_change(first), worst=_change(worst), **fields)


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What is sure of the recommended checkpoint, over problems like these, all of it together at ``confidence``.

    pass@1, from ``base_pass_at_1`` to ``pass_at_1`` on these problems, rose by at least ``gain`` (below 0: it may have
    fallen by that much), and no pass@k fell by more than ``loss``, the bound at ``k``. Probabilities. ``over`` names
    what the band is simultaneous over; ``n_units`` counts the problems, or clusters of them, that it rests on.
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
class BeyondSharpening:
    """pass@1 beyond that of the base drawn at a lower temperature with the same pass@``k`` (probability, 95 %).

    ``gain`` and its bounds are None where they are unknown. ``is_better``: surely above 0, as the verdict asks for it.
    Of this one checkpoint, and not corrected for its having been chosen.
    """

    k: int
    gain: float | None
    low: float | None
    high: float | None
    is_better: bool


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """Which of the checkpoints of ``series``, which share base and problems, to ship, and at which temperature.

    ``recommended`` is None where nothing can be said, and ``why`` says why; else ``why`` says why it is the base, as it
    is or drawn colder, None for another. ``steps`` are all checkpoints, the base first, each followed by what was drawn
    of it at other temperatures. ``guarantee`` is None for the base as it is, of which there is nothing to guarantee,
    and where ``why_no_guarantee`` says why. A fall of up to ``allowed_loss`` (probability) does not exclude a
    checkpoint. ``ks`` are those that were looked at. ``n_problems`` are all problems; with ``held_out`` the choice, and
    every number in ``steps``, rests on ``n_choosing`` of them, as ``steps_of`` says, and the guarantee on the others.
    ``without_training`` says what the base drawn colder gives as well, None where it was not drawn or gives less;
    ``cannot_tell`` that no checkpoint could have qualified with so few problems, None where one could.
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

    __repr__ = short_repr

    @property
    def n_certifying(self) -> int:
        """Problems that the guarantee rests on."""
        return self.n_problems - self.n_choosing if self.held_out else self.n_problems

    @property
    def best_trained(self) -> ShippingStep | None:
        """The checkpoint after the base, at the audit's temperature, to ship where no other temperature is wanted."""
        may = [one for one in (self.recommended, *self.steps) if one and one.role in ("recommended", "candidate")]
        trained = [one for one in may if not one.is_base and one.temperature is None]
        return max(trained, key=lambda one: one.pass_at_1 or 0.0, default=None)

    @property
    def alternatives(self) -> tuple[ShippingStep, ...]:
        """What else may be shipped and may have as high a pass@1."""
        return tuple(one for one in self.steps if one.may_be_best and one.role == "candidate")

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Recommendation:
        """The recommendation that ``dataclasses.asdict`` and JSON made these fields of. ``KeyError``, ``TypeError``."""
        chosen, sure, beyond = fields["recommended"], fields["guarantee"], fields.get("beyond")
        nested = {
            "series": tuple(fields["series"]),
            "recommended": None if chosen is None else ShippingStep.from_fields(**chosen),
            "steps": tuple(ShippingStep.from_fields(**one) for one in fields["steps"]),
            "guarantee": None if sure is None else Guarantee(**sure),
            "ks": tuple(fields["ks"]),
            "beyond": None if beyond is None else BeyondSharpening(**beyond),
        }
        return cls(**{**fields, **nested})

    def _repr_html_(self) -> str:
        """What a notebook shows: the sentence, and what every checkpoint trades, in points."""
        rows = "".join(
            f"<tr><td>{escape(one.series)}</td><td>{one.step}</td>"
            f"<td>{'' if one.temperature is None else f'{one.temperature:g}'}</td><td>{one.role or ''}</td>"
            f"<td>{_points(one.first)}</td><td>{_points(one.worst)}</td><td>{escape(one.why or '')}</td></tr>"
            for one in self.steps
        )
        head = "".join(f"<th>{name}</th>" for name in ("series", "step", "T", "role", "pass@1", "worst pass@k", "why"))
        return f"<div><p>{escape(self.sentence)}</p><table><thead><tr>{head}</tr></thead>{rows}</table></div>"


def _change(fields: Mapping[str, Any] | None) -> BandedChange | None:
    return None if fields is None else BandedChange(**fields)


def _points(change: BandedChange | None) -> str:
    return "" if change is None else f"{100 * change.change:+.1f} at k = {change.k}"
