"""Simulated audits with planted causes of a change of pass@k, and the true part of each cause.

A problem is a distribution over up to four correct ways and twenty wrong answers. A cause changes the checkpoint's
distribution, the fate of its samples, or the grading of either side. The true parts are Shapley values over the
distributions with and without the other causes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures.contract import Evidence

N_WAYS, N_WRONG = 4, 20
#: Lower temperatures at which the base is sampled too.
COLDER = (0.6, 0.3, 0.15)
CAUSES = ("cut_off", "unread", "grader", "sharpening", "guesses", "lost", "ways")
#: Layers of causes: faults of grading, the base at a lower temperature, problems and ways.
LAYERS = (("cut_off", "unread", "grader"), ("sharpening",), ("guesses", "lost", "ways"))
GUESS_RATE = 0.005
Laws = Float[np.ndarray, "problem response"]
Rates = Float[np.ndarray, " problem"]


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Strength of each cause in one simulated world.

    ``accepts``: whether the first grader accepts wrong answers of the base. Otherwise it rejects right answers of the
    checkpoint.
    """

    temperature: float
    guess_rate: float
    accepts: bool
    accepted: float
    rejected_P: Rates
    cut_P: Rates
    unread_P: Rates
    lost_P: Bool[np.ndarray, " problem"]


def alpha_mixture(n_problems: int, rng: np.random.Generator) -> Rates:
    """Return rates of problems that are nearly always or nearly never solved."""
    return rng.beta(0.35, 0.55, n_problems)


def logit_normal(n_problems: int, rng: np.random.Generator) -> Rates:
    """Return rates with one peak and a long tail of rarely solved problems."""
    return 1.0 / (1.0 + np.exp(-rng.normal(-1.0, 2.2, n_problems)))


DIFFICULTIES: Mapping[str, Callable[[int, np.random.Generator], Rates]] = {
    "alpha": alpha_mixture,
    "logit": logit_normal,
}


def base_laws(rate_P: Rates, rng: np.random.Generator) -> Laws:
    """Return the base's distributions: correct ways first, then wrong answers."""
    n_ways_P = rng.integers(1, N_WAYS + 1, len(rate_P))
    way_PW = rng.gamma(1.5, size=(len(rate_P), N_WAYS)) * (np.arange(N_WAYS) < n_ways_P[:, None])
    wrong_PW = rng.dirichlet(np.full(N_WRONG, 0.35), len(rate_P))
    return np.hstack([rate_P[:, None] * way_PW / way_PW.sum(axis=1, keepdims=True), (1 - rate_P)[:, None] * wrong_PW])


def plant(law_PR: Laws, rng: np.random.Generator) -> Planted:
    """Draw realistic strengths: each causes a fall of 3 to 30 points, depending on the problems."""
    n_problems, rate_P = len(law_PR), law_PR[:, :N_WAYS].sum(axis=1)
    return Planted(
        temperature=float(rng.uniform(0.3, 0.5)),
        guess_rate=float(rng.uniform(0.003, 0.006)),
        accepts=bool(rng.random() < 0.5),
        accepted=float(rng.uniform(0.01, 0.03)),
        rejected_P=rng.beta(3, 2, n_problems),
        cut_P=rng.beta(4, 2, n_problems),
        unread_P=rng.beta(4, 2, n_problems),
        lost_P=(rate_P > 0.05) & (rng.random(n_problems) < 0.2),
    )


def tempered(law_PR: Laws, temperature: float) -> Laws:
    sharp_PR = np.where(law_PR > 0, law_PR, 0.0) ** (1.0 / temperature)
    return sharp_PR / sharp_PR.sum(axis=1, keepdims=True)


def late_laws(law_PR: Laws, causes: Sequence[str], planted: Planted) -> Laws:
    """Return the checkpoint's distributions, before truncation, parsing and grading."""
    late_PR = tempered(law_PR, planted.temperature) if "sharpening" in causes else law_PR.copy()
    gone_PW = np.zeros((len(law_PR), N_WAYS), dtype=bool)
    if "ways" in causes:
        gone_PW[:, 0] = (law_PR[:, :N_WAYS] > 0).sum(axis=1) > 1  # only if another way is left
    if "lost" in causes:
        gone_PW |= planted.lost_P[:, None]
    mass_P = (late_PR[:, :N_WAYS] * gone_PW).sum(axis=1)
    late_PR[:, :N_WAYS] *= ~gone_PW
    wrong_PR = law_PR[:, N_WAYS:] + 1e-12
    late_PR[:, N_WAYS:] += mass_P[:, None] * wrong_PR / wrong_PR.sum(axis=1, keepdims=True)
    return late_PR / late_PR.sum(axis=1, keepdims=True)


def accepted_rates(law_PR: Laws, causes: Sequence[str], planted: Planted) -> tuple[Rates, Rates]:
    """Return the rates at which samples of the base and of the checkpoint are graded as correct."""
    base_P = law_PR[:, :N_WAYS].sum(axis=1)
    late_P = late_laws(law_PR, causes, planted)[:, :N_WAYS].sum(axis=1)
    if "grader" in causes and not planted.accepts:
        late_P = late_P * (1 - planted.rejected_P)
    for cause, rate_P in (("cut_off", planted.cut_P), ("unread", planted.unread_P)):
        late_P = late_P * (1 - rate_P) if cause in causes else late_P
    missed_P = (1 - base_P) * (1 - planted.guess_rate * ("guesses" in causes))
    return 1 - missed_P * (1 - planted.accepted * ("grader" in causes and planted.accepts)), late_P


def true_parts(
    law_PR: Laws, causes: Sequence[str], planted: Planted, k: int, *, besides: Sequence[str] = ()
) -> dict[str, float]:
    """Return the true part of each cause in the change of pass@k, as a probability.

    The parts sum to the effect of all ``causes`` in the presence of ``besides``.
    """

    def change(those: Sequence[str]) -> float:
        base_P, late_P = accepted_rates(law_PR, [*those, *besides], planted)
        return float(np.mean((1 - base_P) ** k - (1 - late_P) ** k))

    n, parts = len(causes), {}
    for cause in causes:
        others = [one for one in causes if one != cause]
        parts[cause] = sum(
            factorial(size) * factorial(n - size - 1) / factorial(n) * (change([*those, cause]) - change(those))
            for size in range(n)
            for those in combinations(others, size)
        )
    return parts


def ordered_parts(law_PR: Laws, causes: Sequence[str], planted: Planted, k: int) -> dict[str, float]:
    """Return the parts in one order of layers: grading, lower temperature, then problems and ways."""
    graded, colder, problems = ([one for one in layer if one in causes] for layer in LAYERS)
    # each layer with the causes that are still present
    beside = ((graded, [*colder, *problems]), (colder, []), (problems, colder))
    parts = {
        cause: part
        for layer, others in beside
        for cause, part in true_parts(law_PR, layer, planted, k, besides=others).items()
    }
    return {cause: parts[cause] for cause in causes}


# ---------------------------------------------------------------- counts of an audit


def drawn_evidence(law_PR: Laws, causes: Sequence[str], planted: Planted, n: int, rng: np.random.Generator) -> Evidence:
    """Simulate an audit of the base and one checkpoint.

    Both have n samples. Each lower temperature has half as many.
    """
    base_PR, late_PR = _drawn(law_PR, n, rng), _drawn(late_laws(law_PR, causes, planted), n, rng)
    base, late = _base_counts(base_PR, causes, planted, rng), _late_counts(late_PR, causes, planted, rng)
    own = pd.concat([_rows("base", base["own"], n), _rows("late", late["own"], n)], ignore_index=True)
    n_colder = max(n // 2, 64)
    colder = [_rows("base", _plain(_drawn(tempered(law_PR, t), n_colder, rng)), n_colder).assign(temperature=t)
              for t in COLDER]  # fmt: skip
    controls = pd.concat(colder, ignore_index=True).assign(own_temperature=1.0)
    frames = {"read_counts": own, "sampled_counts": own, "problem_counts": own, "control_counts": controls}
    frames["way_counts"] = pd.concat(
        [_way_rows(name, one["kept"], n, rng) for name, one in (("base", base), ("late", late))], ignore_index=True
    )
    if "grader" in causes:
        second = [_rows(name, one["second"], n) for name, one in (("base", base), ("late", late))]
        frames["second_counts"] = pd.concat([*second, controls], ignore_index=True)
        frames["second_counts"]["temperature"] = frames["second_counts"].get("temperature", np.nan)
        frames["second_way_counts"] = frames["way_counts"]
    ids = ["base", "late"]
    checkpoints = pd.DataFrame({"checkpoint_id": ids, "checkpoint": ids, "step": [0, 1], "is_base": [True, False]})
    return Evidence(checkpoints=checkpoints, frames=frames, n=n, ks=(1,), guess_rate=GUESS_RATE)


def _drawn(law_PR: Laws, n: int, rng: np.random.Generator) -> Int[np.ndarray, "problem response"]:
    return rng.multinomial(n, law_PR / law_PR.sum(axis=1, keepdims=True))


Counts = dict[str, np.ndarray]


def _plain(drawn_PR: np.ndarray) -> Counts:
    correct_P = drawn_PR[:, :N_WAYS].sum(axis=1)
    return {"n_correct": correct_P, "n_cut": np.zeros_like(correct_P), "n_unread": np.zeros_like(correct_P)}


def _base_counts(drawn_PR: np.ndarray, causes: Sequence[str], planted: Planted, rng: np.random.Generator) -> dict:
    second = _plain(drawn_PR)
    wrong_P = drawn_PR[:, N_WAYS:].sum(axis=1)
    guessed_P = rng.binomial(wrong_P, planted.guess_rate * ("guesses" in causes))
    second["n_correct"] = second["n_correct"] + guessed_P
    accepted = planted.accepted * ("grader" in causes and planted.accepts)
    own = {**second, "n_correct": second["n_correct"] + rng.binomial(wrong_P - guessed_P, accepted)}
    return {"own": own, "second": second, "kept": drawn_PR[:, :N_WAYS]}


def _late_counts(drawn_PR: np.ndarray, causes: Sequence[str], planted: Planted, rng: np.random.Generator) -> dict:
    left_PR, lost = drawn_PR, {}
    for cause, rate_P in (("cut_off", planted.cut_P), ("unread", planted.unread_P)):
        taken_PR = rng.binomial(left_PR, rate_P[:, None] * (cause in causes))
        left_PR, lost[cause] = left_PR - taken_PR, taken_PR.sum(axis=1)
    correct_P = left_PR[:, :N_WAYS].sum(axis=1)
    second = {"n_correct": correct_P, "n_cut": lost["cut_off"], "n_unread": lost["unread"]}
    rejected_P = planted.rejected_P * ("grader" in causes and not planted.accepts)
    own = {**second, "n_correct": rng.binomial(correct_P, 1 - rejected_P)}
    return {"own": own, "second": second, "kept": left_PR[:, :N_WAYS]}


def _rows(checkpoint_id: str, counts: Counts, n: int) -> pd.DataFrame:
    problems = [f"q{i:04d}" for i in range(len(counts["n_correct"]))]
    return pd.DataFrame({"checkpoint_id": checkpoint_id, "problem_id": problems, "task": "t", "n": n, **counts,
                         "n_planned": n})  # fmt: skip


def _way_rows(checkpoint_id: str, kept_PW: np.ndarray, n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return the counts of every way, split at random into two halves of all samples."""
    made = []
    for i, kept_W in enumerate(kept_PW):
        first_W = rng.multivariate_hypergeometric([*kept_W, n - kept_W.sum()], n // 2)[:N_WAYS]
        for half, count_W in ((True, first_W), (False, kept_W - first_W)):
            made += [(checkpoint_id, f"q{i:04d}", f"way {w}", half, int(c)) for w, c in enumerate(count_W) if c]
    columns = ["checkpoint_id", "problem_id", "way", "first_half", "n"]
    return pd.DataFrame(made, columns=columns).assign(level="way", n_planned=n)
