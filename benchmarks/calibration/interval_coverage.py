"""Measure how often 95 % intervals contain the truth under hard conditions.

The conditions are sparse problems, rare answers, heavy tails and few seeds. ``python -m
benchmarks.calibration.interval_coverage`` (a minute or two on one core) simulates audits whose truth is known. For each
interval of a measure, and for the plain interval that it replaced, it counts the audits with an interval and how many
of these intervals contain the truth. Writes ``benchmarks/results/interval_coverage.json`` and ``.md``. Exit code 1 if a
reported interval covers less than 93 %.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import entropy, norm

from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.measures.coverage.temporal_forgetting import LEVEL, chance_of_none
from oversharp.diagnostics.statistics.band import simultaneous_band
from oversharp.diagnostics.statistics.crossing import crossing, k_star_of
from oversharp.diagnostics.statistics.entropy import chao_wang_jost_entropy, plug_in_entropy, unseen_room
from oversharp.diagnostics.statistics.intervals import (
    mean_interval,
    median_interval,
    percentile_bounds,
    ratio_interval,
    resampled_means,
    share_interval,
    sparse_interval,
    yes_no_interval,
)
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.statistics.over_seeds import SeedMean, mean_over_seeds
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.units import Interval, by_cluster

REPETITIONS = 4000
BOUND = 0.93
#: Fewest intervals for which coverage is reported.
LEAST_GIVEN = 100

#: Both ends of an interval. None without an interval, infinite for an open end.
Ends = tuple[float, float] | None
#: One simulated audit: the ends of the plain interval, and those of the measure.
Draw = Callable[[np.random.Generator], tuple[Ends, Ends]]
Law = Callable[[np.random.Generator, int], list[np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One quantity under one distribution.

    ``units`` is the number of problems or seeds.
    """

    quantity: str
    law: str
    units: int
    truth: float
    draw: Draw


@dataclass(frozen=True, kw_only=True)
class Row:
    """Share of audits with an interval, and share of these intervals that contain the truth.

    The coverage is None for fewer than ``LEAST_GIVEN`` intervals.
    """

    quantity: str
    law: str
    units: int
    before_given: float
    before_covers: float | None
    given: float
    covers: float | None


def ends(made: Interval | SeedMean) -> Ends:
    return None if made.low is None or made.high is None else (made.low, made.high)


def row_of(case: Case, repetitions: int, seed: int) -> Row:
    rng = np.random.default_rng(seed)
    drawn = [case.draw(rng) for _ in range(repetitions)]
    (before_given, before_covers), (given, covers) = (_told(case.truth, column) for column in zip(*drawn, strict=True))
    return Row(
        quantity=case.quantity, law=case.law, units=case.units,
        before_given=before_given, before_covers=before_covers, given=given, covers=covers,
    )  # fmt: skip


def _told(truth: float, made: Sequence[Ends]) -> tuple[float, float | None]:
    """Return the share of audits with an interval, and the share of these that contain the truth."""
    held = [one[0] - 1e-9 <= truth <= one[1] + 1e-9 for one in made if one is not None]
    return len(held) / len(made), float(np.mean(held)) if len(held) >= LEAST_GIVEN else None


# ---- entropy of answers: a law returns the answer probabilities of each problem


def _some(share: float, answers: int) -> Law:
    """Return a law in which a ``share`` of problems has several answers and the others one."""
    return lambda rng, n: [rng.dirichlet(np.ones(answers)) if rng.random() < share else np.ones(1) for _ in range(n)]


ZIPF = np.arange(1, 301.0) ** -1.5
ENTROPIES: dict[str, Law] = {
    "1 of 20 problems has two answers": _some(0.05, 2),
    "1 of 5 problems has five answers": _some(0.2, 5),
    "a second answer of 1 %": lambda rng, n: [np.array([0.99, 0.01])] * n,
    "20 answers, uneven": lambda rng, n: [rng.dirichlet(np.full(20, 0.3)) for _ in range(n)],
    "300 answers, Zipf 1.5": lambda rng, n: [ZIPF / ZIPF.sum()] * n,
}


def entropy_cases() -> Iterator[Case]:
    for law, make in ENTROPIES.items():
        rows = make(np.random.default_rng(0), 600)
        pool_PA = np.stack([np.pad(row, (0, max(map(len, rows)) - len(row))) for row in rows])
        truth = float(entropy(pool_PA, axis=1).mean())
        for units, n, draw in product((30, 100), (16, 64), (_estimated, _plugged_in)):
            quantity = "answer_entropy" if draw is _estimated else "answer_entropy, plug_in"
            drawn = partial(draw, pool_PA=pool_PA, units=units, n=n)
            yield Case(quantity=quantity, law=f"{law}; {n} samples", units=units, truth=truth, draw=drawn)


def _counts(rng: np.random.Generator, pool_PA: np.ndarray, units: int, n: int) -> tuple[np.ndarray, np.ndarray, int]:
    count_PA = rng.multinomial(n, pool_PA[rng.integers(0, len(pool_PA), units)])
    group_A, answer_A = np.nonzero(count_PA)
    return count_PA[group_A, answer_A], group_A, units


def _estimated(rng: np.random.Generator, *, pool_PA: np.ndarray, units: int, n: int) -> tuple[Ends, Ends]:
    drawn = _counts(rng, pool_PA, units, n)
    value_P = chao_wang_jost_entropy(*drawn)
    return ends(mean_interval(value_P)), ends(sparse_interval(value_P, room_above=float(unseen_room(*drawn).mean())))


def _plugged_in(rng: np.random.Generator, *, pool_PA: np.ndarray, units: int, n: int) -> tuple[Ends, Ends]:
    return ends(mean_interval(plug_in_entropy(*_counts(rng, pool_PA, units, n)))), None


# ---- other quantities

SAMPLES, K, MODES, CHANCE = 64, 8, 4, 0.05
TABLE_C = pass_at_k_table(SAMPLES, [K])[:, 0]


def rarefaction_cases() -> Iterator[Case]:
    for solved, units in product((0.03, 0.05, 0.1), (30, 100)):
        yield Case(
            quantity="mode_rarefaction", law=f"{solved:.0%} of problems have {MODES} modes; k = {K}", units=units,
            truth=solved * MODES * (1 - (1 - CHANCE) ** K), draw=partial(_modes_seen, solved=solved, units=units),
        )  # fmt: skip


def _modes_seen(rng: np.random.Generator, *, solved: float, units: int) -> tuple[Ends, Ends]:
    seen_P = TABLE_C[rng.binomial(SAMPLES, CHANCE, (units, MODES))].sum(axis=1) * (rng.random(units) < solved)
    return ends(mean_interval(seen_P)), ends(sparse_interval(seen_P))


def k_star_cases() -> Iterator[Case]:
    for n, units in product((64, 256), (30, 100)):
        ks = inference_ks(n)
        base_P, late_P = _sharpened(np.random.default_rng(0), 400_000)
        truth_K = np.array([np.mean((1 - base_P) ** k - (1 - late_P) ** k) for k in ks])
        yield Case(
            quantity="k_star", law=f"8 % of problems are lost, the rest improve; {n} samples", units=units,
            truth=float(k_star_of(truth_K[None], ks)[0]), draw=partial(_crossed, n=n, ks=ks, units=units),
        )  # fmt: skip


def _sharpened(rng: np.random.Generator, units: int) -> tuple[np.ndarray, np.ndarray]:
    base_P = rng.beta(0.6, 0.8, units)
    return base_P, np.where(rng.random(units) < 0.08, base_P * 0.02, 1 - (1 - base_P) ** 2)


def _crossed(rng: np.random.Generator, *, n: int, ks: tuple[int, ...], units: int) -> tuple[Ends, Ends]:
    base_P, late_P = _sharpened(rng, units)
    table_CK = pass_at_k_table(n, ks)
    change_PK = table_CK[rng.binomial(n, late_P)] - table_CK[rng.binomial(n, base_P)]
    new = crossing(change_PK, ks)
    old = percentile_bounds(k_star_of(resampled_means(change_PK, rng=rng, draws=199), ks))
    return old, (new.low or np.inf, new.high or np.inf)


HEAVY, JUMP = 0.03, -30.0


def heavy_cases() -> Iterator[Case]:
    law, mean = "3 % of problems fall by 30 more", -0.5 + HEAVY * JUMP
    median = brentq(lambda x: (1 - HEAVY) * norm.cdf(x + 0.5) + HEAVY * norm.cdf(x + 0.5 - JUMP) - 0.5, -5, 5)
    for units in (30, 100):
        yield Case(quantity="interference", law=law, units=units, truth=mean, draw=partial(_mean, units=units))
        yield Case(
            quantity="interference, median", law=law, units=units, truth=median, draw=partial(_median, units=units)
        )


def _moved(rng: np.random.Generator, units: int) -> np.ndarray:
    return rng.normal(-0.5, 1.0, units) + JUMP * (rng.random(units) < HEAVY)


def _mean(rng: np.random.Generator, *, units: int) -> tuple[Ends, Ends]:
    return ends(mean_interval(_moved(rng, units))), None


def _median(rng: np.random.Generator, *, units: int) -> tuple[Ends, Ends]:
    return None, ends(median_interval(_moved(rng, units)))


def seed_cases() -> Iterator[Case]:
    for collapsing, units in product((0.0, 0.25), (3, 5, 10, 20)):
        yield Case(
            quantity="over seeds", law="one run in four collapses" if collapsing else "normal", units=units,
            truth=0.9 - 0.6 * collapsing, draw=partial(_runs, collapsing=collapsing, units=units),
        )  # fmt: skip


def _runs(rng: np.random.Generator, *, collapsing: float, units: int) -> tuple[Ends, Ends]:
    value_S = rng.normal(0.9, 0.02, units) - 0.6 * (rng.random(units) < collapsing)
    return ends(mean_interval(value_S)), ends(mean_over_seeds(value_S.tolist()))


def yes_no_cases() -> Iterator[Case]:
    for units, lost in ((30, 0.07), (100, 0.021)):
        law = f"{lost:.1%} of problems are lost"
        for quantity, truth, draw in (("problems_lost", lost, _lost), ("cover_at_tau_delta", -lost, _fallen)):
            drawn = partial(draw, units=units, lost=lost)
            yield Case(quantity=quantity, law=law, units=units, truth=truth, draw=drawn)


def _lost(rng: np.random.Generator, *, units: int, lost: float) -> tuple[Ends, Ends]:
    lost_P = rng.random(units) < lost
    return ends(share_interval(lost_P.astype(float))), ends(yes_no_interval(lost_P))


def _fallen(rng: np.random.Generator, *, units: int, lost: float) -> tuple[Ends, Ends]:
    change_P = -(rng.random(units) < lost).astype(float)
    one, two = (share_interval(change_P, bounds=(-1.0, 1.0), floor=floor) for floor in (1.0, 2.0))
    return ends(one), ends(two)


# ---- related problems: before, without named clusters; ``units`` are clusters

SIZES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "clusters of 5": lambda rng, n: np.full(n, 5),
    "clusters of 1 to 15": lambda rng, n: rng.integers(1, 16, n),
}
RELATED_KS = inference_ks(SAMPLES)
RELATED_TABLE_CK = pass_at_k_table(SAMPLES, RELATED_KS)
#: Distribution of the probability that a problem of a cluster is lost.
LOST_SHARES = {"9 % of problems are lost": (0.2, 2.0), "3 % of problems are lost": (0.1, 3.2)}
#: Long responses have more nats per token: length 100 + 200u, entropy ½ + u, with u uniform per cluster.
TOKEN_ENTROPY = (100 * 0.5 + (100 + 200 * 0.5) * 0.5 + 200 / 3) / 200


def related_cases() -> Iterator[Case]:
    base_P, late_P = _drifted(np.random.default_rng(0), np.arange(400_000))
    truth_K = np.array([np.mean((1 - base_P) ** k - (1 - late_P) ** k) for k in RELATED_KS])
    truth_of = {
        _related_delta: ("pass_at_k_delta", float(truth_K[RELATED_KS.index(K)])),
        _related_band: ("pass_at_k_band", 0.0),
        _related_crossing: ("k_star", float(k_star_of(truth_K[None], RELATED_KS)[0])),
    }
    for (sizes, size_of), units in product(SIZES.items(), (10, 20, 50)):
        related = {"size_of": size_of, "units": units}
        for draw, (quantity, truth) in truth_of.items():
            drawn = partial(draw, truth_K=truth_K, **related)
            yield Case(quantity=quantity, law=f"{sizes} that drift together", units=units, truth=truth, draw=drawn)
        for lost, shape in LOST_SHARES.items():
            yield Case(
                quantity="problems_lost", law=f"{sizes}, lost together; {lost}", units=units,
                truth=shape[0] / sum(shape), draw=partial(_related_lost, shape=shape, **related),
            )  # fmt: skip
        yield Case(
            quantity="mode_rarefaction", law=f"{sizes}, 1 of 5 with {MODES} modes; k = {K}", units=units,
            truth=0.2 * MODES * (1 - (1 - CHANCE) ** K), draw=partial(_related_modes, **related),
        )  # fmt: skip
        yield Case(
            quantity="token_entropy, token_pooled", law=f"{sizes}, of one entropy and length each", units=units,
            truth=TOKEN_ENTROPY, draw=partial(_related_tokens, pooled=True, **related),
        )  # fmt: skip


def mean_cases() -> Iterator[Case]:
    for (sizes, size_of), units in product(SIZES.items(), (10, 20, 50)):
        yield Case(
            quantity="token_entropy", law=f"{sizes}, of one entropy and length each", units=units,
            truth=1.0, draw=partial(_related_tokens, pooled=False, size_of=size_of, units=units),
        )  # fmt: skip


def _drifted(rng: np.random.Generator, cluster_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return success rates of base and checkpoint.

    Frequently solved clusters rise and the others fall, each as a whole.
    """
    n = int(cluster_P.max()) + 1
    centre_P = rng.normal(-1.0, 1.5, n)[cluster_P] + rng.normal(0.0, 0.3, len(cluster_P))
    moved_P = rng.normal(0.3, 0.8, n)[cluster_P] + 0.8 * (centre_P + 1.0)
    return expit(centre_P), expit(centre_P + moved_P)


def _members(rng: np.random.Generator, size_of: Callable[..., np.ndarray], units: int) -> np.ndarray:
    return np.repeat(np.arange(units), size_of(rng, units))


def _related_changes(rng: np.random.Generator, cluster_P: np.ndarray) -> np.ndarray:
    base_P, late_P = _drifted(rng, cluster_P)
    return RELATED_TABLE_CK[rng.binomial(SAMPLES, late_P)] - RELATED_TABLE_CK[rng.binomial(SAMPLES, base_P)]


def _related_delta(
    rng: np.random.Generator, *, size_of: Callable[..., np.ndarray], units: int, truth_K: np.ndarray
) -> tuple[Ends, Ends]:
    cluster_P = _members(rng, size_of, units)
    change_P = _related_changes(rng, cluster_P)[:, RELATED_KS.index(K)]
    return tuple(ends(share_interval(change_P, bounds=(-1.0, 1.0), cluster_P=named)) for named in (None, cluster_P))


def _related_band(
    rng: np.random.Generator, *, size_of: Callable[..., np.ndarray], units: int, truth_K: np.ndarray
) -> tuple[Ends, Ends]:
    """Return the innermost ends of the band after subtracting the truth at each k.

    They contain 0 if the band contains all truths.
    """
    cluster_P = _members(rng, size_of, units)
    change_PK = _related_changes(rng, cluster_P)
    bands = [simultaneous_band(by_cluster(change_PK, named)[None], rng=rng, draws=199) for named in (None, cluster_P)]
    return tuple((float((one.low_TK[0] - truth_K).max()), float((one.high_TK[0] - truth_K).min())) for one in bands)


def _related_crossing(
    rng: np.random.Generator, *, size_of: Callable[..., np.ndarray], units: int, truth_K: np.ndarray
) -> tuple[Ends, Ends]:
    cluster_P = _members(rng, size_of, units)
    change_PK = _related_changes(rng, cluster_P)
    found = [crossing(by_cluster(change_PK, named), RELATED_KS) for named in (None, cluster_P)]
    return tuple((one.low or np.inf, one.high or np.inf) for one in found)


def _related_lost(
    rng: np.random.Generator, *, size_of: Callable[..., np.ndarray], units: int, shape: tuple[float, float]
) -> tuple[Ends, Ends]:
    cluster_P = _members(rng, size_of, units)
    lost_P = rng.random(len(cluster_P)) < rng.beta(*shape, units)[cluster_P]
    return tuple(ends(yes_no_interval(lost_P, cluster_P=named)) for named in (None, cluster_P))


def _related_modes(rng: np.random.Generator, *, size_of: Callable[..., np.ndarray], units: int) -> tuple[Ends, Ends]:
    cluster_P = _members(rng, size_of, units)
    seen_P = TABLE_C[rng.binomial(SAMPLES, CHANCE, (len(cluster_P), MODES))].sum(axis=1)
    seen_P = seen_P * (rng.random(units) < 0.2)[cluster_P]
    return tuple(ends(sparse_interval(seen_P, cluster_P=named)) for named in (None, cluster_P))


def _related_tokens(
    rng: np.random.Generator, *, size_of: Callable[..., np.ndarray], units: int, pooled: bool
) -> tuple[Ends, Ends]:
    cluster_P = _members(rng, size_of, units)
    u_P = rng.random(units)[cluster_P]
    tokens_P = 100 + 200 * u_P
    nats_P = tokens_P * (0.5 + u_P + rng.normal(0.0, 0.1, len(u_P)))
    if not pooled:
        return tuple(ends(mean_interval(nats_P / tokens_P, cluster_P=named)) for named in (None, cluster_P))
    return tuple(ends(ratio_interval(nats_P, tokens_P, floor=False, cluster_P=named)) for named in (None, cluster_P))


def all_cases() -> Iterator[Case]:
    of_problems = (entropy_cases, rarefaction_cases, k_star_cases, heavy_cases, seed_cases, yes_no_cases)
    for cases in (*of_problems, related_cases, mean_cases):  # the index of a case is its seed
        yield from cases()


# ---- values without any change, and bias


def forgotten_by_chance(rng: np.random.Generator, *, rate: float, n: int, checkpoints: int) -> tuple[float, float]:
    """Return the shares of problems that count as forgotten, and as clearly forgotten, if nothing changed."""
    correct_TP = rng.binomial(n, rate, (checkpoints + 1, 200_000))
    best_P = correct_TP[:-1].max(axis=0)
    forgotten_P = (best_P > 0) & (correct_TP[-1] == 0)
    n_P = np.full(len(best_P), n)
    clear_P = forgotten_P & (chance_of_none(best_P, n_P, n_P) <= LEVEL / checkpoints)
    return float(forgotten_P.mean()), float(clear_P.mean())


def bias_of_cover(rng: np.random.Generator, *, shape: tuple[float, float], n: int) -> float:
    """Return the largest difference, over τ, of the expected share with c/n ≥ τ and the share with p ≥ τ."""
    rate_P = rng.beta(*shape, 200_000)
    seen_P = rng.binomial(n, rate_P) / n
    return max(abs(float((seen_P >= tau).mean() - (rate_P >= tau).mean())) for tau in (0.1, 0.25, 0.5, 0.9))


def text(rows: list[Row], forgotten: dict[str, list[float]], biases: dict[str, float]) -> str:
    def cell(given: float, covers: float | None) -> str:
        if not given:
            return "none"
        return ("too few to tell" if covers is None else f"{covers:.2f}") + (
            f" ({given:.0%} given)" if given < 1 else ""
        )

    lines = [
        "# How often intervals cover",
        "",
        "Share of 95 % intervals that hold the truth, among those that are given; "
        f"{REPETITIONS} audits a row. *Before* is",
        "the plain interval: t over problems or seeds, for k* a percentile bootstrap; of clusters, today's interval",
        "where no cluster is named. Written by `python -m benchmarks.calibration.interval_coverage`.",
        "",
        "| quantity | law | problems, clusters or seeds | before | now |",
        "|---|---|---|---|---|",
        *(
            f"| {row.quantity} | {row.law} | {row.units} | "
            f"{cell(row.before_given, row.before_covers)} | {cell(row.given, row.covers)} |"
            for row in rows
        ),
        "",
        "Temporal forgetting without any change, 64 samples:",
        "",
        "| success rate; checkpoints after the base | all | clear |",
        "|---|---|---|",
        *(f"| {name} | {one[0]:.3f} | {one[1]:.4f} |" for name, one in forgotten.items()),
        "",
        "Cover@τ, largest difference over τ of what n samples show and the share of success rates of at least τ:",
        "",
        "| law of success rates; samples | difference |",
        "|---|---|",
        *(f"| {name} | {one:.3f} |" for name, one in biases.items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    rows = [row_of(case, REPETITIONS, seed) for seed, case in enumerate(all_cases())]
    rng = np.random.default_rng(0)
    forgotten = {
        f"{rate:.0%}; {checkpoints}": list(forgotten_by_chance(rng, rate=rate, n=64, checkpoints=checkpoints))
        for rate in (0.01, 0.02, 0.05)
        for checkpoints in (1, 9)
    }
    biases = {
        f"Beta{shape}; {n}": bias_of_cover(rng, shape=shape, n=n)
        for shape in ((0.5, 0.5), (2.0, 5.0))
        for n in (16, 64, 256)
    }
    missing = [asdict(row) for row in rows if row.covers is not None and row.covers < BOUND]
    write(
        "interval_coverage",
        {
            "benchmark": "interval_coverage",
            "what": "share of 95 % intervals that hold the truth, among those that are given, before and now",
            "repetitions": REPETITIONS,
            "bound": BOUND,
            "below_bound": missing,
            "rows": [asdict(row) for row in rows],
            "forgotten_without_change": forgotten,
            "cover_at_tau_bias": biases,
            **circumstances(["numpy", "scipy"]),
        },
    )
    (RESULTS / "interval_coverage.md").write_text(text(rows, forgotten, biases), encoding="utf-8")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
