"""Laws by which problems get their success rates and training moves them, made without a look at the verdict's rule.

They are those of test theory (ability, difficulty, discrimination), of skills that a solution needs all of, of rates
that drift without going anywhere, of answers that are cut off, mended or guessed. ``held_out_cells.py`` has the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, logit

#: Mastery of each of twelve skills: most are known well, some hardly.
MASTERY = np.linspace(0.5, 0.99, 12)


@dataclass(frozen=True, kw_only=True)
class Course:
    """True chances of one sample of every problem at base (row 0) and checkpoints.

    ``able_SP``: it is right, whoever reads it. ``accepted_SP``: the grader takes it for right; None where that is the
    same. ``unread_SP``: it is cut off or cannot be parsed, and so not accepted; None where that never happens.
    ``modes_SPM``: it is right in this way; they sum to ``able_SP``. None where ways are not told apart. ``cluster_P``
    is the cluster that a user declares; None where none is.
    """

    able_SP: Float[np.ndarray, "step problem"]
    accepted_SP: Float[np.ndarray, "step problem"] | None = None
    unread_SP: Float[np.ndarray, "step problem"] | None = None
    modes_SPM: Float[np.ndarray, "step problem mode"] | None = None
    cluster_P: Int[np.ndarray, " problem"] | None = None

    @property
    def graded(self) -> Float[np.ndarray, "step problem"]:
        """Chances that the grader accepts."""
        return self.able_SP if self.accepted_SP is None else self.accepted_SP


#: From a generator and a number of problems to their chances along a run.
Law = Callable[[np.random.Generator, int], Course]
#: From chances of a base, problem by problem, to those of a checkpoint.
Change = Callable[[np.random.Generator, Float[np.ndarray, " problem"]], Float[np.ndarray, " problem"]]
#: From a generator and a number of problems to a base's chances.
Rates = Callable[[np.random.Generator, int], Float[np.ndarray, " problem"]]


def items(ability: float = 0.0, *, tails: float | None = None, slope: float = 0.5) -> Rates:
    """Two-parameter items: logit p = a (ability − difficulty), a log-normal; difficulty normal, or t with ``tails``."""

    def rates(rng: np.random.Generator, n_problems: int) -> Float[np.ndarray, " problem"]:
        difficulty_P = 1.5 * (rng.standard_normal(n_problems) if tails is None else rng.standard_t(tails, n_problems))
        return expit(rng.lognormal(0.0, slope, n_problems) * (ability - difficulty_P))

    return rates


def powers(power: float) -> Rates:
    """Uniform numbers to a power: most problems are hardly ever solved, with no end to how rarely."""
    return lambda rng, n_problems: rng.uniform(size=n_problems) ** power


def few_solvable(share: float) -> Rates:
    """Only this share of the problems can be solved at all, those mostly rarely; the others never are."""
    return lambda rng, n_problems: np.where(rng.random(n_problems) < share, rng.beta(1.0, 3.0, n_problems), 0.0)


def nearly_solved(mean: float, *, scatter: float = 6.0) -> Rates:
    """Beta rates around a mean close to 1: a benchmark that is used up."""
    return lambda rng, n_problems: rng.beta(scatter * mean, scatter * (1.0 - mean), n_problems)


def graded_strictly(rates: Rates) -> Rates:
    """Of each problem's right answers its grader takes a share of its own, as the form of some is foreign to it."""
    return lambda rng, n_problems: rates(rng, n_problems) * rng.beta(6.0, 1.5, n_problems)


def moved(rates: Rates, *changes: Change) -> Law:
    """A base's rates, and at every checkpoint what the change of its place makes of them."""

    def law(rng: np.random.Generator, n_problems: int) -> Course:
        base_P = rates(rng, n_problems)
        return Course(able_SP=np.stack([base_P, *(change(rng, base_P) for change in changes)]))

    return law


def still(_: np.random.Generator, base_P: Float[np.ndarray, " problem"]) -> Float[np.ndarray, " problem"]:
    """Training that moves nothing."""
    return base_P


def shifted(by: float) -> Change:
    """All logits move alike: more ability, or less."""
    return lambda _, base_P: np.where((base_P > 0) & (base_P < 1), expit(_logit(base_P) + by), base_P)


def scaled(by: float) -> Change:
    """Every problem keeps this part of its rate."""
    return lambda _, base_P: by * base_P


def tail_killed(below: float, *, kept: float, gain: float) -> Change:
    """What was solved rarely is nearly given up, the rest is gained on."""
    return lambda rng, base_P: np.where(base_P < below, kept * base_P, shifted(gain)(rng, base_P))


def polarised(_: np.random.Generator, base_P: Float[np.ndarray, " problem"]) -> Float[np.ndarray, " problem"]:
    """Winner takes all: what is mostly right becomes surely right, the rest surely wrong."""
    return np.where(base_P > 0.5, 0.995, 0.002 * base_P)


def sharpened(power: float) -> Change:
    """Wrong answers alone lose: the chance of a wrong one is raised to a power above 1."""
    return lambda _, base_P: 1.0 - (1.0 - base_P) ** power


def struck(share: float, *, kept: float = 0.0) -> Change:
    """Each problem is forgotten with this chance, whatever it was, down to ``kept`` of its rate."""
    return lambda rng, base_P: np.where(rng.random(len(base_P)) < share, kept * base_P, base_P)


def lasting(change: Change, *, at: Sequence[bool]) -> Callable[[Rates], Law]:
    """One change, drawn once, that stands at some of the checkpoints."""

    def of(rates: Rates) -> Law:
        def law(rng: np.random.Generator, n_problems: int) -> Course:
            base_P = rates(rng, n_problems)
            changed_P = change(rng, base_P)
            return Course(able_SP=np.stack([base_P, *(changed_P if there else base_P for there in at)]))

        return law

    return of


def skills(*mastery: Float[np.ndarray, " skill"], most: int = 4) -> Law:
    """A problem needs 1 to ``most`` skills, each at every step: its rate is the product of their mastery."""

    def law(rng: np.random.Generator, n_problems: int) -> Course:
        n_P = rng.integers(1, most + 1, n_problems)
        order_PK = rng.random((n_problems, len(MASTERY))).argsort(axis=1).argsort(axis=1)
        needs_PK = order_PK < n_P[:, None]
        log_S = np.log(np.stack(mastery))
        return Course(able_SP=np.exp(log_S @ needs_PK.T))

    return law


def drifting(n_steps: int, *, stays: float, largest_topic: int = 1, shared: float = 0.0) -> Law:
    """Logits that wander around their mean and as often up as down: no step differs from another by law.

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
    """Whole topics, which are declared, are forgotten; problems of the others are kept."""

    def law(rng: np.random.Generator, n_problems: int) -> Course:
        cluster_P = _topics(rng, n_problems, largest)
        base_P = rates(rng, n_problems)
        late_P = np.where((rng.random(n_problems) < share)[cluster_P], 0.02 * base_P, base_P)
        return Course(able_SP=np.stack([base_P, *[late_P] * n_steps]), cluster_P=cluster_P)

    return law


def ways(n_steps: int, *, dominant: float, others: float) -> Law:
    """Four ways of being right: wrong mass moves to the likeliest by ``dominant``, the others keep this part of theirs.

    What the others lose goes to the likeliest one too.
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
    """Solutions grow until, at the last checkpoint, these shares are cut off; those of harder problems are longer."""

    def cut(rng: np.random.Generator, n_problems: int) -> Course:
        able_SP = law(rng, n_problems).able_SP
        grown_S1 = np.linspace(0.0, 1.0, len(able_SP))[:, None]
        long_SP = 2.0 * grown_S1 * (1.0 - able_SP[:1])
        right_SP, wrong_SP = (np.minimum(share * long_SP, 0.95) for share in (of_right, of_wrong))
        unread_SP = able_SP * right_SP + (1.0 - able_SP) * wrong_SP
        return Course(able_SP=able_SP, accepted_SP=able_SP * (1.0 - right_SP), unread_SP=unread_SP)

    return cut


def mended(law: Law, *, unread: float) -> Law:
    """This share of the base's answers cannot be parsed; training teaches the form."""

    def mend(rng: np.random.Generator, n_problems: int) -> Course:
        able_SP = law(rng, n_problems).able_SP
        unread_SP = np.full_like(able_SP, 0.0)
        unread_SP[0] = unread
        return Course(able_SP=able_SP, accepted_SP=able_SP * (1.0 - unread_SP), unread_SP=unread_SP)

    return mend


def guessed(law: Law, *, shares: Sequence[float]) -> Law:
    """Of wrong answers the grader accepts this share at every step, evenly."""

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
    """Standard normal at every step, by an autoregression of order one."""
    walk = [rng.standard_normal(n_problems)]
    while len(walk) <= n_steps:
        walk.append(stays * walk[-1] + np.sqrt(1.0 - stays**2) * rng.standard_normal(n_problems))
    return np.stack(walk)
