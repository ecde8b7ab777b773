"""Records of the results behind a verdict: changes, claims, single checkpoints, explanations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oversharp.diagnostics.verdict.causes.explanations import Cause
from oversharp.diagnostics.verdict.headings import VerdictLabel


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
    """Result by a lenient reader of the same samples.

    ``rise`` is the change of the share of samples that only the lenient reader accepts, a probability. ``label`` is the
    verdict's label by the lenient counts. ``explains`` means that they are the reason for the label "format".
    """

    rise: float
    label: VerdictLabel
    explains: bool


#: Another reading of the same samples: by the lenient reader's grades, of the parsed samples alone, or with the late
#: unparsed samples in excess of the base's taken for correct.
ReadingName = Literal["lenient reader", "parsed samples", "unparsed taken for correct"]


@dataclass(frozen=True, kw_only=True)
class OtherReading:
    """Changes of pass@k by another reading of the same samples: what remains of a fall.

    ``p`` is the p value of "mean pass@k of these problems fell at no k" by this reading.
    """

    name: ReadingName
    changes: tuple[ChangeAtK, ...]
    p: float


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
    length of samples is unknown. With a stopping rule, ``first`` and ``enough`` are its first round and its number of
    correct samples. Then ``n`` and ``n_base`` are the largest numbers of samples of a problem, and ``tokens`` and
    ``samples`` are expected numbers. ``samples`` is None in verdicts of older versions.
    """

    drop: float
    n_problems: int
    n: int
    n_base: int
    tokens: float | None
    first: int | None = None
    enough: int | None = None
    samples: int | None = None


@dataclass(frozen=True, kw_only=True)
class UntilSolved:
    """How the samples were drawn by a stopping rule.

    Each problem of a checkpoint has at least ``first_round`` samples. It was not sampled further after the round that
    left it with ``enough`` correct ones. ``mean_base`` and ``mean_late`` are mean numbers of samples per problem: of
    the base, and of a checkpoint of the window.
    """

    enough: int
    first_round: int
    mean_base: float
    mean_late: float
