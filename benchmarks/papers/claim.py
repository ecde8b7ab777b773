"""Claims of the papers: statement, numbers that could refute it, and the resulting verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from oversharp.reports.records import Figure

Paper = Literal["A", "B", "C"]
Outcome = Literal["holds", "fails", "undecided"]
Kind = Literal["holds", "holds when", "fails as printed, holds corrected", "fails", "undecided"]
#: Whether the statement is the paper's or a corrected one.
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
    """Rule: the number is above ``threshold``."""

    threshold: float

    def outcome(self, estimate: Estimate) -> Outcome:
        """Decide only if the interval is on one side of the threshold."""
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
    """Rule: the number is below ``threshold``."""

    threshold: float

    def outcome(self, estimate: Estimate) -> Outcome:
        """Decide only if the interval is on one side of the threshold."""
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
    """Rule of a universal claim: the estimate is the share of counterexamples, and one refutes the claim."""

    def outcome(self, estimate: Estimate) -> Outcome:
        """Refute with one counterexample. Without any among n instances the claim counts as holding."""
        if estimate.value is None:
            return "undecided"
        return "holds" if estimate.value == 0 else "fails"

    @property
    def text(self) -> str:
        """The rule in words."""
        return "holds if no instance is a counterexample, fails at one"


@dataclass(frozen=True, kw_only=True)
class Printed:
    """Rule: the number rounds to the one that the paper prints."""

    number: float
    decimals: int

    def outcome(self, estimate: Estimate) -> Outcome:
        """Allow half a unit of the last printed digit."""
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
    """A claim in one setting.

    Attributes:
        setting: Pairs of factor and level. All checks of a claim have the same factors. The factor ``""`` has levels
            that need no name, the factor :data:`PART` levels that are parts of the statement.
        independent: The same number from an independent implementation, over 200 seeds.
        independent_range: Lowest and highest share that it reported for an unknown number of instances.
        form: "corrected" for a corrected statement, which the paper does not make.
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
        """Apply the rule to the estimate."""
        return self.rule.outcome(self.estimate)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Verdict on a claim.

    Attributes:
        condition: The settings of ``holds when``, or the corrected form that holds.
        elsewhere: Counts of the outcomes of the other settings.
        of_parts: The settings are parts of the statement, so it holds *for* them.
        excluded: The condition names the settings that do not hold, because that is shorter.
    """

    kind: Kind
    condition: str = ""
    elsewhere: str = ""
    of_parts: bool = False
    excluded: bool = False

    @property
    def text(self) -> str:
        """The verdict in one line."""
        kind: str = self.kind
        if self.condition and self.kind == FAILS_AS_PRINTED:
            kind += ":"
        elif self.condition:
            kind = f"holds {'except ' if self.excluded else ''}{'for' if self.of_parts else 'when'}"
        return f"{kind} {self.condition}".strip() + (f" ({self.elsewhere})" if self.elsewhere else "")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Report of the independent implementation in words, and the verdict from its numbers.

    ``why_apart``: reason why our numbers differ.
    """

    text: str
    kind: Kind
    why_apart: str = ""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One row of the table.

    ``statement`` is the paper's statement, ``place`` its section.
    """

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
    """Result of one file of ``families``: claims, and figures that show them.

    ``setting`` is common to all claims. They add their own settings.
    """

    title: str
    setting: str
    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Amount of computation: seeds and steps of the toy worlds, instances of the closed forms, and the seed."""

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
        """Steps that count as "eventually": ten times those of the papers' figures."""
        return 10 * self.steps


def _bounds(estimate: Estimate) -> tuple[float, float] | None:
    if estimate.value is None:
        return None
    low = estimate.value if estimate.low is None else estimate.low
    high = estimate.value if estimate.high is None else estimate.high
    return low, high
