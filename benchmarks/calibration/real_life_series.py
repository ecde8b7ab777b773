"""Simulated series with known rates and complications of real runs, labelled by the verdict's rule.

With ``enough``, the samples of a problem are drawn in rounds until ``enough`` are correct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit, logit

from benchmarks.calibration.in_rounds import series_in_rounds
from benchmarks.calibration.planted import draw_problems, mass_at
from benchmarks.calibration.series import rule
from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks, mean_changes
from oversharp.diagnostics.statistics.units import too_few_to_generalise
from oversharp.diagnostics.verdict.causes.unparsed import Unread
from oversharp.diagnostics.verdict.claims import size_given_label
from oversharp.diagnostics.verdict.counts import SeriesCounts, window_size
from oversharp.diagnostics.verdict.record import POSITIVE
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, Limits, LossTable, spent_share
from oversharp.diagnostics.verdict.seen import SeenCounts, seen_counts

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


class Draw(Protocol):
    """Draw one series and label it."""

    def __call__(self, rng: np.random.Generator, enough: int | None = None) -> Outcome: ...


def evidence(
    base_P: Rates,
    late_TP: Sequence[Rates],
    n: int,
    rng: np.random.Generator,
    *,
    n_base: int | None = None,
    enough: int | None = None,
) -> SeenCounts:
    """Draw the counts of an audit: ``n`` samples of each checkpoint, by default twice as many of the base."""
    return looks(base_P, late_TP, n, rng, n_base=n_base, enough=enough)(len(late_TP))


def looks(
    base_P: Rates,
    late_TP: Sequence[Rates],
    n: int,
    rng: np.random.Generator,
    *,
    n_base: int | None = None,
    enough: int | None = None,
) -> Callable[[int], SeenCounts]:
    """Draw the counts of an audit, and return the counts after its first checkpoints, given their number."""
    n_base = 2 * n if n_base is None else n_base
    if enough is not None:
        n_S = [n_base, *[n] * len(late_TP)]
        counts = series_in_rounds(n_S, enough, np.stack([base_P, *late_TP]), rng)
        return lambda look: replace(_seen(replace(counts, trained=counts.trained[:look])), unread=())
    base_hits_P = rng.binomial(n_base, base_P)
    late_hits = [rng.binomial(n, rate_P) for rate_P in late_TP]
    return lambda look: of_counts(base_hits_P, late_hits[:look], n_base=n_base, n=n)


def _seen(counts: SeriesCounts) -> SeenCounts:
    """Return the counts without the settings of an audit, as ``of_counts`` does."""
    return replace(seen_counts(replace(counts, selected_by="none")), guess_share=0.0, limits=Limits())


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


def unchanged(law: Law, n_problems: int, n: int, n_checkpoints: int) -> Draw:
    def draw(rng: np.random.Generator, enough: int | None = None) -> Outcome:
        rate_P = law(n_problems, rng)
        return ruled(evidence(rate_P, [rate_P] * n_checkpoints, n, rng, enough=enough), rng)[1]

    return draw


def permuted(law: Law, n_problems: int, n: int, *, drifting: bool = False) -> Draw:
    """Permute the rates of the problems, once or at every checkpoint.

    pass@k does not change at any k.
    """

    def draw(rng: np.random.Generator, enough: int | None = None) -> Outcome:
        rate_P = law(n_problems, rng)
        swapped_P = rng.permutation(rate_P)
        late = [rng.permutation(rate_P) if drifting else swapped_P for _ in range(9)]
        return ruled(evidence(rate_P, late, n, rng, enough=enough), rng)[1]

    return draw


def guessed(
    accepted: float, n_problems: int, n: int, law: Law = logit_normal, *, among: float = 1.0, risen: float = 0.0
) -> Draw:
    """The grader accepts a share of wrong answers of the base and none later, because training changed them.

    With ``among`` below 1 this applies to a part of the problems. All checkpoints but the last gain ``risen`` log-odds.
    """

    def draw(rng: np.random.Generator, enough: int | None = None) -> Outcome:
        rate_P = law(n_problems, rng)
        accepted_P = accepted * (rng.random(n_problems) < among)
        late = [_lifted(rate_P, risen)] * 8 + [rate_P]
        seen = evidence(rate_P + accepted_P * (1 - rate_P), late, n, rng, enough=enough)
        return ruled(replace(seen, guess_share=ASSUMED_GUESSES), rng)[1]

    return draw


def _lifted(rate_P: Rates, log_odds: float) -> Rates:
    return expit(logit(np.clip(rate_P, 1e-12, 1 - 1e-12)) + log_odds) * (rate_P > 0)


def related(n_problems: int, size: int, drift: float, *, named: bool, first: int = 0) -> Draw:
    """Clusters of problems with similar rates, whose log-odds move together.

    The mean move over clusters is 0. The ``first`` problems are one more cluster. With too few clusters the label is
    about these problems only, as in an audit.
    """

    def draw(rng: np.random.Generator, enough: int | None = None) -> Outcome:
        cluster_P = np.concatenate([np.zeros(first, dtype=np.int64), 1 + np.arange(n_problems - first) // size])
        cluster_P -= cluster_P[0]
        n_clusters = int(cluster_P[-1]) + 1
        centre_P = rng.normal(0.5, 1.5, n_clusters)[cluster_P] + 0.3 * rng.normal(size=n_problems)
        moved_P = centre_P + drift * rng.normal(size=n_clusters)[cluster_P]
        # both sides have the same distribution, so no pass@k changes on average over clusters
        centre_P = centre_P + drift * rng.normal(size=n_clusters)[cluster_P]
        seen = evidence(expit(centre_P), [expit(moved_P)] * 9, 256, rng, enough=enough)
        outcome = ruled(replace(seen, cluster_P=cluster_P if named else None), rng)[1]
        if named and outcome.label == "over_sharpened" and too_few_to_generalise(cluster_P) is not None:
            return replace(outcome, label="over_sharpened_here")
        return outcome

    return draw


def killed(
    n_problems: int, n: int, points: float, at: Sequence[int], *, n_checkpoints: int = 9, sizes: bool = False
) -> Draw:
    """Lose random solvable problems completely at the checkpoints ``at``: on average ``points`` per cent of all.

    The true size is that of the population if the label is about the population, else that of these problems.
    """

    def draw(rng: np.random.Generator, enough: int | None = None) -> Outcome:
        rate_P = logit_normal(n_problems, rng)
        gone_P = _gone(rate_P, points, rng)
        late = [np.where(gone_P, 0.0, rate_P) if t in at else rate_P for t in range(n_checkpoints)]
        seen = replace(evidence(rate_P, late, n, rng, enough=enough), guess_share=ASSUMED_GUESSES)
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
) -> Draw:
    """At some checkpoints a share of the correct samples, and ``of_wrong`` of the others, is unparsed.

    By default the share is the same for both. ``of_base`` of all base samples are unparsed. All checkpoints but the
    last gain ``risen`` log-odds. In the last third ``points`` per cent of the problems are lost.
    """

    def draw(rng: np.random.Generator, enough: int | None = None) -> Outcome:
        rate_P = law(n_problems, rng)
        gone_P = _gone(rate_P, killed_points, rng)
        late = [_lifted(rate_P, risen if t < 8 else 0.0) * ~(gone_P & (t > 5)) for t in range(9)]
        shares = [share if t in at else 0.0 for t in range(9)]
        parts = [part if of_wrong is None else of_wrong for part in shares]
        if enough is not None:
            rate_SP = np.stack([rate_P, *late])
            unread_SP, misses_SP = np.array([[of_base, *shares], [of_base, *parts]])[:, :, None]
            unread_SP, rate_SP = rate_SP * unread_SP + (1 - rate_SP) * misses_SP, rate_SP * (1 - unread_SP)
            seen = _seen(series_in_rounds([2 * n, *[n] * 9], enough, rate_SP, rng, unread_SP=unread_SP))
            return ruled(seen if known else replace(seen, unread=()), rng)[1]
        unread_base_P = rng.binomial(2 * n, of_base, size=n_problems)
        base_P = rng.binomial(2 * n - unread_base_P, rate_P)
        hits = [rng.binomial(n, late_P) for late_P in late]
        unread_hits = [rng.binomial(hit_P, part) for hit_P, part in zip(hits, shares, strict=True)]
        unread_misses = [rng.binomial(n - hit_P, part) for hit_P, part in zip(hits, parts, strict=True)]
        seen = of_counts(base_P, [hit - lost for hit, lost in zip(hits, unread_hits, strict=True)], n_base=2 * n, n=n)
        if known:
            both = zip(unread_hits, unread_misses, strict=True)
            seen = replace(seen, unread=[Unread(base_P=unread_base_P, late_P=a_P + b_P) for a_P, b_P in both])
        return ruled(seen, rng)[1]

    return draw


def looked_at(n_looks: int, *, declared: int | None, n_runs: int = 1) -> Draw:
    """No change, with a verdict after each checkpoint of each run. The first loss counts."""

    def draw(rng: np.random.Generator, enough: int | None = None) -> Outcome:
        outcome = Outcome(label="inconclusive")
        for _ in range(n_runs):
            rate_P = logit_normal(60, rng)
            seen_at = looks(rate_P, [rate_P] * n_looks, 64, rng, enough=enough)
            for look in range(1, n_looks + 1) if n_runs == 1 else (n_looks,):
                number = look if n_runs == 1 else 1
                spent = spent_share(number=number, declared=declared, runs=n_runs)
                outcome = ruled(replace(seen_at(look), spent=spent), rng)[1]
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


def read_while_it_sharpens(n_looks: int, *, declared: int | None) -> Draw:
    """Severe over-sharpening (``planted.py``) with a verdict after each checkpoint, or at the end only."""

    def draw(rng: np.random.Generator, enough: int | None = None) -> Outcome:
        problems = draw_problems(200, rng)
        rates = [mass_at("over_severe", problems, t / 9).sum(axis=1) for t in range(10)]
        seen_at = looks(rates[0], rates[1:], 256, rng, enough=enough)
        outcome = Outcome(label="inconclusive")
        for look in range(1, 10) if n_looks > 1 else (9,):
            spent = spent_share(number=look if n_looks > 1 else 1, declared=declared, runs=1)
            outcome = ruled(replace(seen_at(look), spent=spent), rng)[1]
            if outcome.label in POSITIVE:
                return outcome
        return outcome

    return draw
