"""Pairs of success rates, of a base and of a late checkpoint, for questions about the number of samples.

Each pair returns the rates of the same problems. ``PAIRS`` has shapes that are difficult for estimates of pass@k:
impossible problems, rare solutions, rates over four orders of magnitude, lost and gained problems, topics that move
together. In the unchanged ones pass@k changes at no k. ``HELD_OUT`` has distributions that were written for another
question (``calibration/held_out_laws.py``). ``stored.py`` has pairs of real checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit

from benchmarks.calibration.held_out_cells import CELLS, Cell
from benchmarks.calibration.held_out_laws import Change, Rates, few_solvable, shifted, still, struck

#: (generator, number of problems) → rates of the base and of the late checkpoint
Pair = Callable[[np.random.Generator, int], tuple[Float[np.ndarray, " problem"], Float[np.ndarray, " problem"]]]
#: Logarithms (base 10) of the rarest and the most frequent rate of the log-uniform distribution.
DECADES = (-4.0, 0.0)
N_TOPICS, N_ANSWERS = 10, 12


def changed(rates: Rates, *changes: Change) -> Pair:
    """Rates of a base, and the same after these changes in order."""

    def pair(rng: np.random.Generator, n_problems: int) -> tuple[np.ndarray, np.ndarray]:
        base_P = rates(rng, n_problems)
        late_P = base_P
        for change in changes:
            late_P = change(rng, late_P)
        return base_P, late_P

    return pair


def independent(base: Rates, late: Rates) -> Pair:
    """Rates of base and checkpoint that have nothing in common."""
    return lambda rng, n_problems: (base(rng, n_problems), late(rng, n_problems))


def beta(successes: float, failures: float) -> Rates:
    """Beta rates."""
    return lambda rng, n_problems: rng.beta(successes, failures, n_problems)


def log_odds(centre: float, spread: float) -> Rates:
    """Rates with normal log-odds."""
    return lambda rng, n_problems: expit(rng.normal(centre, spread, n_problems))


def log_uniform(rng: np.random.Generator, n_problems: int) -> Float[np.ndarray, " problem"]:
    """Rates that are as frequent in each order of magnitude."""
    return 10.0 ** rng.uniform(*DECADES, n_problems)


def easy_or_hard(rng: np.random.Generator, n_problems: int) -> Float[np.ndarray, " problem"]:
    """Half of the problems are mostly solved, the others rarely."""
    return np.where(rng.random(n_problems) < 0.5, rng.beta(20.0, 4.0, n_problems), rng.beta(1.0, 30.0, n_problems))


def competition(rng: np.random.Generator, n_problems: int) -> Float[np.ndarray, " problem"]:
    """Rates as in AIME: 30 % impossible, 20 % rare, the others of any difficulty."""
    kind_P = rng.random(n_problems)
    rare_P = 10.0 ** rng.uniform(-3.5, -1.5, n_problems)
    return np.where(kind_P < 0.3, 0.0, np.where(kind_P < 0.5, rare_P, rng.beta(0.8, 0.8, n_problems)))


def polarising(slope: float, shift: float) -> Change:
    """Scale and shift the log-odds: frequent answers become more frequent, rare ones rarer."""
    return lambda _, rate_P: np.where(rate_P > 0, expit(shift + slope * logit(np.clip(rate_P, 1e-300, 1 - 1e-12))), 0.0)


def fallen_to(rate: float, *, share: float) -> Change:
    """This share of the problems falls to one rate."""
    return lambda rng, rate_P: np.where(rng.random(len(rate_P)) < share, rate, rate_P)


def jittered(spread: float) -> Change:
    """Add normal noise to the log-odds."""
    return lambda rng, rate_P: expit(logit(rate_P) + rng.normal(0.0, spread, len(rate_P)))


def found(share: float, rates: Rates) -> Change:
    """This share of the impossible problems becomes possible."""

    def change(rng: np.random.Generator, rate_P: np.ndarray) -> np.ndarray:
        is_found_P = (rate_P == 0) & (rng.random(len(rate_P)) < share)
        return np.where(is_found_P, rates(rng, len(rate_P)), rate_P)

    return change


def hard_ones_lost(rng: np.random.Generator, rate_P: Float[np.ndarray, " problem"]) -> Float[np.ndarray, " problem"]:
    """Problems above one half are sharpened, the others keep a quarter of their rate."""
    return np.where(rate_P > 0.5, polarising(1.6, 1.0)(rng, rate_P), rate_P / 4)


def four_kinds(base: tuple[float, ...], late: tuple[float, ...]) -> Pair:
    """Problems of a few kinds, each with one rate before and one after."""

    def pair(rng: np.random.Generator, n_problems: int) -> tuple[np.ndarray, np.ndarray]:
        kind_P = rng.integers(len(base), size=n_problems)
        return np.array(base)[kind_P], np.array(late)[kind_P]

    return pair


def tempered(temperature: float) -> Pair:
    """Twelve answers of which one to three are right; the checkpoint is the base at a lower temperature."""

    def pair(rng: np.random.Generator, n_problems: int) -> tuple[np.ndarray, np.ndarray]:
        logit_PA = rng.normal(0.0, 2.6, (n_problems, N_ANSWERS))
        is_right_PA = np.arange(N_ANSWERS) < rng.integers(1, 4, n_problems)[:, None]

        def right_share(divisor: float) -> np.ndarray:
            mass_PA = np.exp(logit_PA / divisor)
            return (mass_PA * is_right_PA).sum(axis=1) / mass_PA.sum(axis=1)

        return right_share(1.0), right_share(temperature)

    return pair


def topics(rng: np.random.Generator, n_problems: int) -> tuple[np.ndarray, np.ndarray]:
    """Problems of ten topics: they have similar rates, and move alike."""
    topic_P = np.arange(n_problems) % N_TOPICS
    centre_T, shift_T = rng.normal(-1.0, 1.8, N_TOPICS), rng.normal(-0.5, 1.5, N_TOPICS)
    base_P = centre_T[topic_P] + rng.normal(0.0, 0.3, n_problems)
    return expit(base_P), expit(1.2 * base_P + shift_T[topic_P])


def exchanged(rng: np.random.Generator, n_problems: int) -> tuple[np.ndarray, np.ndarray]:
    """8 % of the problems are lost and as many others, with the same rates, are found: no mean pass@k changes."""
    base_P = rng.beta(0.7, 1.5, n_problems)
    n_moved = round(0.08 * n_problems)
    lost_P, found_P = np.split(rng.permutation(n_problems)[: 2 * n_moved], 2)
    late_P = base_P.copy()
    base_P[lost_P] = late_P[found_P] = rng.beta(2.0, 5.0, n_moved)
    late_P[lost_P] = base_P[found_P] = 0.0
    return base_P, late_P


def noisy_twins(rng: np.random.Generator, n_problems: int) -> tuple[np.ndarray, np.ndarray]:
    """Two noisy copies of the same log-odds: no change in the population, but in any set of problems."""
    centre_P = rng.normal(-2.0, 2.2, n_problems)
    first_P, second_P = rng.normal(0.0, 0.7, (2, n_problems))
    return expit(centre_P + first_P), expit(centre_P + second_P)


_MIXED, _PARTLY_IMPOSSIBLE = beta(0.6, 1.2), few_solvable(0.6)
_SHARPENED, _SLIGHTLY = polarising(1.6, 1.0), polarising(1.2, 0.8)
#: Pairs whose pass@k changes at no k.
UNCHANGED: dict[str, Pair] = {
    "mixed, unchanged": changed(_MIXED, still),
    "40 % impossible, unchanged": changed(_PARTLY_IMPOSSIBLE, still),
    "easy or hard, unchanged": changed(easy_or_hard, still),
    "log-uniform, unchanged": changed(log_uniform, still),
    "four kinds, unchanged": four_kinds((0.0, 0.004, 0.5, 1.0), (0.0, 0.004, 0.5, 1.0)),
    "8 % lost, 8 % found": exchanged,
    "log-odds, two noisy copies": noisy_twins,
}
#: All pairs.
PAIRS: dict[str, Pair] = {
    **UNCHANGED,
    "mixed, sharpened": changed(_MIXED, _SHARPENED),
    "mixed, sharpened, 10 % lost": changed(_MIXED, _SLIGHTLY, struck(0.1)),
    "mixed, sharpened, 10 % nearly lost": changed(_MIXED, _SLIGHTLY, struck(0.1, kept=0.02)),
    "40 % impossible, sharpened, 8 % lost": changed(_PARTLY_IMPOSSIBLE, _SHARPENED, struck(0.08)),
    "40 % impossible, a quarter of these found": changed(_PARTLY_IMPOSSIBLE, found(0.25, beta(1.0, 20.0))),
    "easy or hard, hard ones lost": changed(easy_or_hard, hard_ones_lost),
    "log-uniform, to the power 1.3": changed(log_uniform, lambda _, rate_P: rate_P**1.3),
    "mostly hard, sharpened": changed(beta(0.3, 3.0), polarising(1.25, 1.0)),
    "four kinds, the rarest rarer": four_kinds((0.01, 0.1, 0.5, 0.9), (0.002, 0.1, 0.7, 0.98)),
    "topics that move alike": topics,
    "at temperature 0.6": tempered(0.6),
    "at temperature 0.4": tempered(0.4),
    "all improve": changed(log_odds(-2.0, 2.0), shifted(1.2), jittered(0.5)),
    "near the ceiling, independent": independent(
        lambda rng, n_problems: rng.uniform(0.3, 1.0, n_problems),
        lambda rng, n_problems: rng.uniform(0.06, 1.0, n_problems),
    ),
    "15 % fall to .005": changed(beta(2.0, 4.0), polarising(1.1, 0.5), fallen_to(0.005, share=0.15)),
    "15 % fall to 0": changed(beta(2.0, 4.0), polarising(1.1, 0.5), fallen_to(0.0, share=0.15)),
    "as in AIME, sharpened, 5 % nearly lost": changed(competition, polarising(1.4, 1.2), struck(0.05, kept=0.05)),
    "log-odds, shifted with noise": changed(log_odds(-2.0, 2.5), shifted(0.5), jittered(1.0)),
    "log-odds, independent": independent(log_odds(-1.5, 2.0), log_odds(-1.0, 2.8)),
}
_NAMES = (
    "t items gained", "skills gained", "drift", "aime", "saturated", "powers", "cut wrong", "mended",
    "strict graders", "sharpened", "ability lost", "tail lost", "winner takes all", "skill lost", "ways lost",
    "mended and lost", "slowly", "last bad", "few carry it", "aime lost",
)  # fmt: skip


def base_and_last(cell: Cell) -> Pair:
    """Rates at which the grader accepts a sample, at the base and at the last checkpoint of a held-out cell."""

    def pair(rng: np.random.Generator, n_problems: int) -> tuple[np.ndarray, np.ndarray]:
        graded_SP = cell.law(rng, n_problems).graded
        return np.clip(graded_SP[0], 0.0, 1.0), np.clip(graded_SP[-1], 0.0, 1.0)

    return pair


#: Pairs of the calibration's held-out cells without clusters.
HELD_OUT: dict[str, Pair] = {name: base_and_last(CELLS[name]) for name in _NAMES}
