"""Simulated series with known rates and complications of real runs, labelled by the verdict's rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit, logit

from benchmarks.calibration.planted import draw_problems, mass_at
from benchmarks.calibration.series import rule
from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks, mean_changes
from oversharp.diagnostics.statistics.units import too_few_to_generalise
from oversharp.diagnostics.verdict.causes.unparsed import Unread
from oversharp.diagnostics.verdict.claims import size_given_label
from oversharp.diagnostics.verdict.counts import window_size
from oversharp.diagnostics.verdict.record import POSITIVE
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, LossTable, spent_share
from oversharp.diagnostics.verdict.seen import SeenCounts

Rates = Float[np.ndarray, " problem"]
#: Assumed rate of false accepts.
ASSUMED_GUESSES = 0.005


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Label of one series, indices of the checkpoints that were called lost, and sizes of the fall.

    ``sizes``: the true fall, the printed one and the one given the label, as probabilities. Only for positive labels.
    """

    label: str
    lost: tuple[int, ...] = ()
    sizes: tuple[float, float, float] | None = None


def evidence(
    base_P: Rates, late_TP: Sequence[Rates], n: int, rng: np.random.Generator, *, n_base: int | None = None
) -> SeenCounts:
    """Draw the counts of an audit: ``n`` samples of each checkpoint, by default twice as many of the base."""
    n_base = 2 * n if n_base is None else n_base
    base_hits_P = rng.binomial(n_base, base_P)
    late_hits = [rng.binomial(n, rate_P) for rate_P in late_TP]
    return of_counts(base_hits_P, late_hits, n_base=n_base, n=n)


def of_counts(base_P: Int[np.ndarray, " problem"], late: Sequence[np.ndarray], *, n_base: int, n: int) -> SeenCounts:
    """Build the counts of an audit from correct samples."""
    steps = [PairedCounts(base_P=base_P, late_P=late_P, n_base=n_base, n_late=n) for late_P in late]
    window = window_size(len(late))
    ks = inference_ks(min(n_base, n))
    return SeenCounts(
        total=PairedCounts(base_P=base_P, late_P=np.sum(late[-window:], axis=0), n_base=n_base, n_late=window * n),
        window=steps[-window:], steps=steps, ks=ks, step_ks=ks,
    )  # fmt: skip


def ruled(seen: SeenCounts, rng: np.random.Generator) -> tuple[LossTable, Outcome]:
    label, table = rule(seen, rng=rng)
    lost = tuple(position for position, row in enumerate(table.checkpoints) if row.fell)
    return table, Outcome(label=label, lost=lost)


def logit_normal(n_problems: int, rng: np.random.Generator) -> Rates:
    """Return rates as in ``rule``: a tenth out of reach, pass@1 about .2."""
    return draw_problems(n_problems, rng).mass_PJ.sum(axis=1)


def easy(n_problems: int, rng: np.random.Generator) -> Rates:
    return rng.beta(6, 2, n_problems)


def hard(n_problems: int, rng: np.random.Generator) -> Rates:
    return rng.beta(0.3, 12, n_problems)


def bimodal(n_problems: int, rng: np.random.Generator) -> Rates:
    return np.where(rng.random(n_problems) < 0.5, rng.beta(1, 30, n_problems), rng.beta(30, 3, n_problems))


def mostly_unsolvable(n_problems: int, rng: np.random.Generator) -> Rates:
    return np.where(rng.random(n_problems) < 0.7, 0.0, rng.beta(0.6, 3, n_problems))


def nearly_impossible(n_problems: int, rng: np.random.Generator) -> Rates:
    return np.where(rng.random(n_problems) < 0.95, 0.0, rng.beta(0.7, 2, n_problems))


def log_uniform(n_problems: int, rng: np.random.Generator) -> Rates:
    return 10.0 ** rng.uniform(-4, 0, n_problems)


Law = Callable[[int, np.random.Generator], Rates]
LAWS: Mapping[str, Law] = {
    "easy": easy, "hard": hard, "bimodal": bimodal, "70 % unsolvable": mostly_unsolvable, "logit-normal": logit_normal,
}  # fmt: skip


def unchanged(law: Law, n_problems: int, n: int, n_checkpoints: int) -> Callable[[np.random.Generator], Outcome]:
    def draw(rng: np.random.Generator) -> Outcome:
        rate_P = law(n_problems, rng)
        return ruled(evidence(rate_P, [rate_P] * n_checkpoints, n, rng), rng)[1]

    return draw


def permuted(law: Law, n_problems: int, n: int, *, drifting: bool = False) -> Callable[[np.random.Generator], Outcome]:
    """Permute the rates of the problems, once or at every checkpoint.

    pass@k does not change at any k.
    """

    def draw(rng: np.random.Generator) -> Outcome:
        rate_P = law(n_problems, rng)
        swapped_P = rng.permutation(rate_P)
        late = [rng.permutation(rate_P) if drifting else swapped_P for _ in range(9)]
        return ruled(evidence(rate_P, late, n, rng), rng)[1]

    return draw


def guessed(
    accepted: float, n_problems: int, n: int, law: Law = logit_normal, *, among: float = 1.0, risen: float = 0.0
) -> Callable[[np.random.Generator], Outcome]:
    """The grader accepts a share of wrong answers of the base and none later, because training changed them.

    With ``among`` below 1 this applies to a part of the problems. All checkpoints but the last gain ``risen`` log-odds.
    """

    def draw(rng: np.random.Generator) -> Outcome:
        rate_P = law(n_problems, rng)
        accepted_P = accepted * (rng.random(n_problems) < among)
        late = [_lifted(rate_P, risen)] * 8 + [rate_P]
        seen = evidence(rate_P + accepted_P * (1 - rate_P), late, n, rng)
        return ruled(replace(seen, guess_share=ASSUMED_GUESSES), rng)[1]

    return draw


def _lifted(rate_P: Rates, log_odds: float) -> Rates:
    return expit(logit(np.clip(rate_P, 1e-12, 1 - 1e-12)) + log_odds) * (rate_P > 0)


def related(
    n_problems: int, size: int, drift: float, *, named: bool, first: int = 0
) -> Callable[[np.random.Generator], Outcome]:
    """Clusters of problems with similar rates, whose log-odds move together.

    The mean move over clusters is 0. The ``first`` problems are one more cluster. With too few clusters the label is
    about these problems only, as in an audit.
    """

    def draw(rng: np.random.Generator) -> Outcome:
        cluster_P = np.concatenate([np.zeros(first, dtype=np.int64), 1 + np.arange(n_problems - first) // size])
        cluster_P -= cluster_P[0]
        n_clusters = int(cluster_P[-1]) + 1
        centre_P = rng.normal(0.5, 1.5, n_clusters)[cluster_P] + 0.3 * rng.normal(size=n_problems)
        moved_P = centre_P + drift * rng.normal(size=n_clusters)[cluster_P]
        # both sides have the same distribution, so no pass@k changes on average over clusters
        centre_P = centre_P + drift * rng.normal(size=n_clusters)[cluster_P]
        seen = evidence(expit(centre_P), [expit(moved_P)] * 9, 256, rng)
        outcome = ruled(replace(seen, cluster_P=cluster_P if named else None), rng)[1]
        if named and outcome.label == "over_sharpened" and too_few_to_generalise(cluster_P) is not None:
            return replace(outcome, label="over_sharpened_here")
        return outcome

    return draw


def killed(
    n_problems: int, n: int, points: float, at: Sequence[int], *, n_checkpoints: int = 9, sizes: bool = False
) -> Callable[[np.random.Generator], Outcome]:
    """Lose random solvable problems completely at the checkpoints ``at``: on average ``points`` per cent of all.

    The true size is that of the population if the label is about the population, else that of these problems.
    """

    def draw(rng: np.random.Generator) -> Outcome:
        rate_P = logit_normal(n_problems, rng)
        gone_P = _gone(rate_P, points, rng)
        late = [np.where(gone_P, 0.0, rate_P) if t in at else rate_P for t in range(n_checkpoints)]
        seen = replace(evidence(rate_P, late, n, rng), guess_share=ASSUMED_GUESSES)
        table, outcome = ruled(seen, rng)
        if not sizes or outcome.label not in POSITIVE:
            return outcome
        of_these = table.window.p_population > KEY_LEVEL
        return replace(outcome, sizes=_sizes(seen, table, gone_P.mean() if of_these else points / 100))

    return draw


def _gone(rate_P: Rates, points: float, rng: np.random.Generator) -> Bool[np.ndarray, " problem"]:
    """Choose random solvable problems to lose: on average ``points`` per cent of all problems."""
    within_P = rate_P > 0.05
    return within_P & (rng.random(len(rate_P)) < points / 100 * len(rate_P) / max(1, within_P.sum()))


def _sizes(seen: SeenCounts, table: LossTable, true: float) -> tuple[float, float, float] | None:
    change_K = mean_changes(seen.window, seen.ks).mean(axis=0)
    change = float(change_K.min())
    if change >= 0:
        return None
    return float(true), -change, -size_given_label(change, table.sizes.error)


def cut_off(
    share: float,
    *,
    known: bool,
    of_wrong: float | None = None,
    of_base: float = 0.0,
    n_problems: int = 100,
    n: int = 256,
    law: Law = logit_normal,
    at: Sequence[int] = range(9),
    risen: float = 0.0,
    killed_points: float = 0.0,
) -> Callable[[np.random.Generator], Outcome]:
    """At some checkpoints a share of the correct samples, and ``of_wrong`` of the others, is unparsed.

    By default the share is the same for both. ``of_base`` of all base samples are unparsed. All checkpoints but the
    last gain ``risen`` log-odds. In the last third ``points`` per cent of the problems are lost.
    """

    def draw(rng: np.random.Generator) -> Outcome:
        rate_P = law(n_problems, rng)
        gone_P = _gone(rate_P, killed_points, rng)
        unread_base_P = rng.binomial(2 * n, of_base, size=n_problems)
        base_P = rng.binomial(2 * n - unread_base_P, rate_P)
        late = [_lifted(rate_P, risen if t < 8 else 0.0) * ~(gone_P & (t > 5)) for t in range(9)]
        hits = [rng.binomial(n, late_P) for late_P in late]
        shares = [share if t in at else 0.0 for t in range(9)]
        unread_hits = [rng.binomial(hit_P, part) for hit_P, part in zip(hits, shares, strict=True)]
        parts = [part if of_wrong is None else of_wrong for part in shares]
        unread_misses = [rng.binomial(n - hit_P, part) for hit_P, part in zip(hits, parts, strict=True)]
        seen = of_counts(base_P, [hit - lost for hit, lost in zip(hits, unread_hits, strict=True)], n_base=2 * n, n=n)
        if known:
            both = zip(unread_hits, unread_misses, strict=True)
            seen = replace(seen, unread=[Unread(base_P=unread_base_P, late_P=a_P + b_P) for a_P, b_P in both])
        return ruled(seen, rng)[1]

    return draw


def looked_at(n_looks: int, *, declared: int | None, n_runs: int = 1) -> Callable[[np.random.Generator], Outcome]:
    """No change, with a verdict after each checkpoint of each run. The first loss counts."""

    def draw(rng: np.random.Generator) -> Outcome:
        outcome = Outcome(label="inconclusive")
        for _ in range(n_runs):
            rate_P = logit_normal(60, rng)
            base_P = rng.binomial(128, rate_P)
            hits = [rng.binomial(64, rate_P) for _ in range(n_looks)]
            for look in range(1, n_looks + 1) if n_runs == 1 else (n_looks,):
                seen = of_counts(base_P, hits[:look], n_base=128, n=64)
                number = look if n_runs == 1 else 1
                spent = spent_share(number=number, declared=declared, runs=n_runs)
                outcome = ruled(replace(seen, spent=spent), rng)[1]
                if outcome.label in POSITIVE:
                    return outcome
        return outcome

    return draw


def grown(sizes: Sequence[int], *, declared: int | None) -> Callable[[np.random.Generator], Outcome]:
    """No change. Samples of the same three checkpoints are added until a verdict reports a loss."""

    def draw(rng: np.random.Generator) -> Outcome:
        rate_P = logit_normal(100, rng)
        base_P, hits, n = np.zeros(100, dtype=np.int64), [np.zeros(100, dtype=np.int64)] * 3, 0
        outcome = Outcome(label="inconclusive")
        for look, more in enumerate(sizes, start=1):
            base_P = base_P + rng.binomial(2 * more, rate_P)
            hits, n = [hit_P + rng.binomial(more, rate_P) for hit_P in hits], n + more
            spent = spent_share(number=look, declared=declared, runs=1)
            outcome = ruled(replace(of_counts(base_P, hits, n_base=2 * n, n=n), spent=spent), rng)[1]
            if outcome.label in POSITIVE:
                return outcome
        return outcome

    return draw


def read_while_it_sharpens(n_looks: int, *, declared: int | None) -> Callable[[np.random.Generator], Outcome]:
    """Severe over-sharpening (``planted.py``) with a verdict after each checkpoint, or at the end only."""

    def draw(rng: np.random.Generator) -> Outcome:
        problems = draw_problems(200, rng)
        rates = [mass_at("over_severe", problems, t / 9).sum(axis=1) for t in range(10)]
        base_P = rng.binomial(512, rates[0])
        hits = [rng.binomial(256, rate_P) for rate_P in rates[1:]]
        outcome = Outcome(label="inconclusive")
        for look in range(1, 10) if n_looks > 1 else (9,):
            spent = spent_share(number=look if n_looks > 1 else 1, declared=declared, runs=1)
            outcome = ruled(replace(of_counts(base_P, hits[:look], n_base=512, n=256), spent=spent), rng)[1]
            if outcome.label in POSITIVE:
                return outcome
        return outcome

    return draw
