"""Distributions of success rates and their change by training.

They were written without looking at the verdict's rule: test theory (ability, difficulty, discrimination), solutions
that need several skills, rates that drift without a direction, answers that are truncated, repaired or guessed.
``held_out_cells.py`` has the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, logit

#: Mastery of each of twelve skills. Most are high, some are low.
MASTERY = np.linspace(0.5, 0.99, 12)


@dataclass(frozen=True, kw_only=True)
class Course:
    """True probabilities of one sample of every problem at the base (row 0) and each checkpoint.

    Attributes:
        able_SP: The sample is right.
        accepted_SP: The grader accepts it. None if this equals ``able_SP``.
        unread_SP: It is truncated or unparsed, and so not accepted. None if this never happens.
        modes_SPM: It is right in this way. The sum is ``able_SP``. None if ways are not distinguished.
        cluster_P: The cluster that a user declares. None without clusters.
    """

    able_SP: Float[np.ndarray, "step problem"]
    accepted_SP: Float[np.ndarray, "step problem"] | None = None
    unread_SP: Float[np.ndarray, "step problem"] | None = None
    modes_SPM: Float[np.ndarray, "step problem mode"] | None = None
    cluster_P: Int[np.ndarray, " problem"] | None = None

    @property
    def graded(self) -> Float[np.ndarray, "step problem"]:
        """Return the probability that the grader accepts a sample."""
        return self.able_SP if self.accepted_SP is None else self.accepted_SP


#: (generator, number of problems) → probabilities along a run
Law = Callable[[np.random.Generator, int], Course]
#: probabilities of a base → probabilities of a checkpoint, by problem
Change = Callable[[np.random.Generator, Float[np.ndarray, " problem"]], Float[np.ndarray, " problem"]]
#: (generator, number of problems) → probabilities of a base
Rates = Callable[[np.random.Generator, int], Float[np.ndarray, " problem"]]


def items(ability: float = 0.0, *, tails: float | None = None, slope: float = 0.5) -> Rates:
    """Two-parameter items of test theory: logit p = a (ability − difficulty).

    a is log-normal. The difficulty is normal, or t with ``tails`` degrees of freedom.
    """

    def rates(rng: np.random.Generator, n_problems: int) -> Float[np.ndarray, " problem"]:
        difficulty_P = 1.5 * (rng.standard_normal(n_problems) if tails is None else rng.standard_t(tails, n_problems))
        return expit(rng.lognormal(0.0, slope, n_problems) * (ability - difficulty_P))

    return rates


def powers(power: float) -> Rates:
    """Uniform numbers to a power: most problems are hardly ever solved, some arbitrarily rarely."""
    return lambda rng, n_problems: rng.uniform(size=n_problems) ** power


def few_solvable(share: float) -> Rates:
    """Only this share of the problems can be solved at all, most of them rarely."""
    return lambda rng, n_problems: np.where(rng.random(n_problems) < share, rng.beta(1.0, 3.0, n_problems), 0.0)


def nearly_solved(mean: float, *, scatter: float = 6.0) -> Rates:
    """Beta rates with a mean close to 1: a saturated benchmark."""
    return lambda rng, n_problems: rng.beta(scatter * mean, scatter * (1.0 - mean), n_problems)


def graded_strictly(rates: Rates) -> Rates:
    """The grader rejects a share of each problem's right answers, because it cannot parse their form."""
    return lambda rng, n_problems: rates(rng, n_problems) * rng.beta(6.0, 1.5, n_problems)


def moved(rates: Rates, *changes: Change) -> Law:
    """Rates of a base, and of each checkpoint after its change."""

    def law(rng: np.random.Generator, n_problems: int) -> Course:
        base_P = rates(rng, n_problems)
        return Course(able_SP=np.stack([base_P, *(change(rng, base_P) for change in changes)]))

    return law


def still(_: np.random.Generator, base_P: Float[np.ndarray, " problem"]) -> Float[np.ndarray, " problem"]:
    """No change by training."""
    return base_P


def shifted(by: float) -> Change:
    """Shift all logits by the same amount."""
    return lambda _, base_P: np.where((base_P > 0) & (base_P < 1), expit(_logit(base_P) + by), base_P)


def scaled(by: float) -> Change:
    """Multiply the rate of every problem by this factor."""
    return lambda _, base_P: by * base_P


def tail_killed(below: float, *, kept: float, gain: float) -> Change:
    """Rarely solved problems are nearly lost, the others gain."""
    return lambda rng, base_P: np.where(base_P < below, kept * base_P, shifted(gain)(rng, base_P))


def polarised(_: np.random.Generator, base_P: Float[np.ndarray, " problem"]) -> Float[np.ndarray, " problem"]:
    """Winner takes all: mostly right becomes always right, the rest always wrong."""
    return np.where(base_P > 0.5, 0.995, 0.002 * base_P)


def sharpened(power: float) -> Change:
    """Raise the probability of a wrong answer to a power above 1."""
    return lambda _, base_P: 1.0 - (1.0 - base_P) ** power


def struck(share: float, *, kept: float = 0.0) -> Change:
    """Forget each problem with this probability, down to ``kept`` of its rate."""
    return lambda rng, base_P: np.where(rng.random(len(base_P)) < share, kept * base_P, base_P)


def lasting(change: Change, *, at: Sequence[bool]) -> Callable[[Rates], Law]:
    """One change, drawn once, that applies at some of the checkpoints."""

    def of(rates: Rates) -> Law:
        def law(rng: np.random.Generator, n_problems: int) -> Course:
            base_P = rates(rng, n_problems)
            changed_P = change(rng, base_P)
            return Course(able_SP=np.stack([base_P, *(changed_P if there else base_P for there in at)]))

        return law

    return of


def skills(*mastery: Float[np.ndarray, " skill"], most: int = 4) -> Law:
    """A problem needs 1 to ``most`` skills. Its rate is the product of their mastery at each step."""

    def law(rng: np.random.Generator, n_problems: int) -> Course:
        n_P = rng.integers(1, most + 1, n_problems)
        order_PK = rng.random((n_problems, len(MASTERY))).argsort(axis=1).argsort(axis=1)
        needs_PK = order_PK < n_P[:, None]
        log_S = np.log(np.stack(mastery))
        return Course(able_SP=np.exp(log_S @ needs_PK.T))

    return law


def drifting(n_steps: int, *, stays: float, largest_topic: int = 1, shared: float = 0.0) -> Law:
    """Logits that fluctuate around their mean, so that all steps have the same distribution.

    ``stays`` is the correlation of neighbouring steps. Topics have 1 to ``largest_topic`` problems, which share this
    part of their variance and are declared as clusters.
    """

    def law(rng: np.random.Generator, n_problems: int) -> Course:
        cluster_P = _topics(rng, n_problems, largest_topic)
        own_SP = _wander(rng, n_steps, n_problems, stays)
        topic_SP = _wander(rng, n_steps, n_problems, stays)[:, cluster_P]
        logit_SP = -0.5 + 1.8 * (np.sqrt(1.0 - shared) * own_SP + np.sqrt(shared) * topic_SP)
        return Course(able_SP=expit(logit_SP), cluster_P=cluster_P if largest_topic > 1 else None)

    return law


def topics_lost(share: float, *, largest: int, n_steps: int, rates: Rates) -> Law:
    """Forget whole topics, which are declared as clusters. Problems of other topics are kept."""

    def law(rng: np.random.Generator, n_problems: int) -> Course:
        cluster_P = _topics(rng, n_problems, largest)
        base_P = rates(rng, n_problems)
        late_P = np.where((rng.random(n_problems) < share)[cluster_P], 0.02 * base_P, base_P)
        return Course(able_SP=np.stack([base_P, *[late_P] * n_steps]), cluster_P=cluster_P)

    return law


def ways(n_steps: int, *, dominant: float, others: float) -> Law:
    """Four correct ways: probability moves to the most frequent one.

    ``dominant`` is the part of wrong probability that it gains. The other ways keep a part of theirs, and it gains the
    rest.
    """

    def law(rng: np.random.Generator, n_problems: int) -> Course:
        right_P = rng.beta(1.2, 1.5, n_problems)
        base_PM = right_P[:, None] * rng.dirichlet(np.full(4, 0.6), n_problems)
        likeliest_PM = np.arange(4) == base_PM.argmax(axis=1)[:, None]
        late_PM = np.where(likeliest_PM, base_PM, others * base_PM)
        freed_P = right_P - late_PM.sum(axis=1) + dominant * (1.0 - right_P)
        late_PM = late_PM + likeliest_PM * freed_P[:, None]
        modes_SPM = np.stack([base_PM, *[late_PM] * n_steps])
        return Course(able_SP=modes_SPM.sum(axis=2), modes_SPM=modes_SPM)

    return law


def cut_off(law: Law, *, of_right: float, of_wrong: float) -> Law:
    """Solutions grow until these shares are truncated at the last checkpoint. Harder problems have longer ones."""

    def cut(rng: np.random.Generator, n_problems: int) -> Course:
        able_SP = law(rng, n_problems).able_SP
        grown_S1 = np.linspace(0.0, 1.0, len(able_SP))[:, None]
        long_SP = 2.0 * grown_S1 * (1.0 - able_SP[:1])
        right_SP, wrong_SP = (np.minimum(share * long_SP, 0.95) for share in (of_right, of_wrong))
        unread_SP = able_SP * right_SP + (1.0 - able_SP) * wrong_SP
        return Course(able_SP=able_SP, accepted_SP=able_SP * (1.0 - right_SP), unread_SP=unread_SP)

    return cut


def mended(law: Law, *, unread: float) -> Law:
    """This share of the base's answers cannot be parsed. Training teaches the format."""

    def mend(rng: np.random.Generator, n_problems: int) -> Course:
        able_SP = law(rng, n_problems).able_SP
        unread_SP = np.full_like(able_SP, 0.0)
        unread_SP[0] = unread
        return Course(able_SP=able_SP, accepted_SP=able_SP * (1.0 - unread_SP), unread_SP=unread_SP)

    return mend


def guessed(law: Law, *, shares: Sequence[float]) -> Law:
    """The grader accepts this share of wrong answers at every step."""

    def guess(rng: np.random.Generator, n_problems: int) -> Course:
        able_SP = law(rng, n_problems).able_SP
        share_S1 = np.asarray(shares)[:, None]
        return Course(able_SP=able_SP, accepted_SP=able_SP + share_S1 * (1.0 - able_SP))

    return guess


def _logit(p_P: Float[np.ndarray, " problem"]) -> Float[np.ndarray, " problem"]:
    return logit(np.clip(p_P, 1e-300, 1.0 - 1e-15))


def _topics(rng: np.random.Generator, n_problems: int, largest: int) -> Int[np.ndarray, " problem"]:
    sizes = rng.integers(1, largest + 1, n_problems)
    return np.repeat(np.arange(n_problems), sizes)[:n_problems]


def _wander(rng: np.random.Generator, n_steps: int, n_problems: int, stays: float) -> Float[np.ndarray, "step problem"]:
    """Return a first-order autoregression that is standard normal at every step."""
    walk = [rng.standard_normal(n_problems)]
    while len(walk) <= n_steps:
        walk.append(stays * walk[-1] + np.sqrt(1.0 - stays**2) * rng.standard_normal(n_problems))
    return np.stack(walk)
