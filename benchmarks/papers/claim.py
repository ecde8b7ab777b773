"""What a claim is: a statement of a paper, numbers that could refute it, and a verdict that follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from oversharp.reports.records import Figure

Paper = Literal["A", "B", "C"]
Outcome = Literal["holds", "fails", "undecided"]
Kind = Literal["holds", "holds when", "fails as printed, holds corrected", "fails", "undecided"]
#: What the paper says, or what it should have said.
Form = Literal["printed", "corrected"]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its 95 % interval; ``n`` counts ``of`` (seeds, instances).

    An exact number has no interval: ``low`` and ``high`` are None. Where n is 0 the value is None too.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    of: str
    unit: str

    def __post_init__(self) -> None:
        if any(bound is not None and math.isnan(bound) for bound in (self.value, self.low, self.high)):
            raise ValueError(f"{self.value} [{self.low}, {self.high}] {self.unit}: unknown is None, not NaN")
        if (self.value is None) != (self.n == 0):
            raise ValueError(f"{self.value} of {self.n} {self.of}: a value needs {self.of}, and they give one")


@dataclass(frozen=True, kw_only=True)
class Above:
    """The claim says: more than ``threshold``."""

    threshold: float

    def outcome(self, estimate: Estimate) -> Outcome:
        """Decided only where the interval lies on one side of the threshold."""
        if (bounds := _bounds(estimate)) is None:
            return "undecided"
        if bounds[0] > self.threshold:
            return "holds"
        return "fails" if bounds[1] < self.threshold or estimate.low is None else "undecided"

    @property
    def text(self) -> str:
        """The rule in words."""
        return f"holds if the interval lies above {self.threshold:.3g}, fails if below"


@dataclass(frozen=True, kw_only=True)
class Below:
    """The claim says: less than ``threshold``."""

    threshold: float

    def outcome(self, estimate: Estimate) -> Outcome:
        """Decided only where the interval lies on one side of the threshold."""
        if (bounds := _bounds(estimate)) is None:
            return "undecided"
        if bounds[1] < self.threshold:
            return "holds"
        return "fails" if bounds[0] > self.threshold or estimate.high is None else "undecided"

    @property
    def text(self) -> str:
        """The rule in words."""
        return f"holds if the interval lies below {self.threshold:.3g}, fails if above"


@dataclass(frozen=True, kw_only=True)
class Never:
    """The claim is universal: the estimate is the share of counterexamples, and one refutes it."""

    def outcome(self, estimate: Estimate) -> Outcome:
        """One counterexample is enough; none among n instances is as much as numbers can say."""
        if estimate.value is None:
            return "undecided"
        return "holds" if estimate.value == 0 else "fails"

    @property
    def text(self) -> str:
        """The rule in words."""
        return "holds if no instance is a counterexample, fails at one"


@dataclass(frozen=True, kw_only=True)
class Printed:
    """The paper prints a number; it is right if ours rounds to it."""

    number: float
    decimals: int

    def outcome(self, estimate: Estimate) -> Outcome:
        """Half a unit of the last printed digit is allowed."""
        allowed = 0.5 * 10.0**-self.decimals * (1 + 1e-9)
        if estimate.value is None:
            return "undecided"
        return "holds" if abs(estimate.value - self.number) <= allowed else "fails"

    @property
    def text(self) -> str:
        """The rule in words."""
        return f"holds if it rounds to the printed {self.number:.{self.decimals}f}"


PART = "part"
FAILS_AS_PRINTED: Final = "fails as printed, holds corrected"
Rule = Above | Below | Never | Printed


@dataclass(frozen=True, kw_only=True)
class Check:
    """A claim in one setting. ``setting`` holds pairs of factor and level, the same factors in all checks of a claim.

    The factor ``""`` has levels that name themselves, the factor :data:`PART` levels that are parts of the statement.

    ``independent`` is what an independent implementation measured for the same number over 200 seeds,
    ``independent_range`` the shares that it reported of an unknown number of instances, lowest and highest.
    ``form`` is "corrected" where a mended statement is tested, which the paper does not make.
    """

    setting: tuple[tuple[str, str], ...]
    quantity: str
    estimate: Estimate
    rule: Rule
    independent: float | None = None
    independent_range: tuple[float, float] | None = None
    form: Form = "printed"

    @property
    def outcome(self) -> Outcome:
        """What the rule says of the estimate."""
        return self.rule.outcome(self.estimate)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """``condition`` names the settings of ``holds when``, or the corrected form that holds.

    ``elsewhere`` counts what the other settings came to.

    ``of_parts``: the settings are parts of the statement, so it holds *for* them. ``excluded``: the condition names
    the settings that do not hold, because that is shorter.
    """

    kind: Kind
    condition: str = ""
    elsewhere: str = ""
    of_parts: bool = False
    excluded: bool = False

    @property
    def text(self) -> str:
        """All of it in one line."""
        kind: str = self.kind
        if self.condition and self.kind == FAILS_AS_PRINTED:
            kind += ":"
        elif self.condition:
            kind = f"holds {'except ' if self.excluded else ''}{'for' if self.of_parts else 'when'}"
        return f"{kind} {self.condition}".strip() + (f" ({self.elsewhere})" if self.elsewhere else "")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the independent implementation reported, in words, and the verdict that its numbers come to.

    ``why_apart`` is said where ours differ: the reason, in words.
    """

    text: str
    kind: Kind
    why_apart: str = ""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One row of the table. ``statement`` is what the paper says, ``place`` where it says so."""

    claim_id: str
    paper: Paper
    place: str
    statement: str
    setting: str
    checks: tuple[Check, ...]
    independent: Finding | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError(f"claim {self.claim_id}: no number, no verdict")
        if len({tuple(factor for factor, _ in check.setting) for check in self.checks}) > 1:
            raise ValueError(f"claim {self.claim_id}: its checks have different factors")
        if len({check.setting for check in self.checks}) < len(self.checks):
            raise ValueError(f"claim {self.claim_id}: one setting is checked twice")
        if any(check.form == "corrected" and PART not in dict(check.setting) for check in self.checks):
            raise ValueError(f"claim {self.claim_id}: a corrected form needs a name, under {PART!r}")


@dataclass(frozen=True, kw_only=True)
class Family:
    """What one file of ``families`` gives: claims, and the figures that show them.

    ``setting`` is what all of its claims share; their own settings add to it.
    """

    title: str
    setting: str
    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is run: seeds and steps of the toy worlds, random instances of the closed forms, the seed of both."""

    seeds: int = 200
    steps: int = 500
    instances: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seeds < 2 or self.instances < 2:
            raise ValueError("an interval needs two seeds and two instances at least")
        if self.steps < 1:
            raise ValueError(f"steps {self.steps}: nothing would be trained")

    @property
    def long_steps(self) -> int:
        """What stands for "eventually": ten times the steps of the papers' figures."""
        return 10 * self.steps


def _bounds(estimate: Estimate) -> tuple[float, float] | None:
    if estimate.value is None:
        return None
    low = estimate.value if estimate.low is None else estimate.low
    high = estimate.value if estimate.high is None else estimate.high
    return low, high
