"""Stored samples of a real audit, drawn again in another order by a stopping rule.

The samples of each problem are shuffled, without replacement, and the rule stops in that order. So nothing is assumed
about their distribution. Samples and tokens that the rule would not have drawn are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from benchmarks.calibration.series import reach_here
from benchmarks.sampling.rates import Pair
from oversharp import open_store
from oversharp.diagnostics.statistics.pass_at_k import StoppingRule


@dataclass(frozen=True, kw_only=True)
class StoredSamples:
    """Graded samples of one checkpoint, equally many of every problem.

    ``rate_P`` has the exact success rates, where every correct response is listed; None elsewhere. ``tokens_PN`` is
    None where a length is unknown.
    """

    series: str
    step: int
    is_base: bool
    correct_PN: Bool[np.ndarray, "problem sample"]
    tokens_PN: Int[np.ndarray, "problem sample"] | None
    rate_P: Float[np.ndarray, " problem"] | None

    @property
    def n(self) -> int:
        """Number of samples of every problem."""
        return self.correct_PN.shape[1]


@dataclass(frozen=True, kw_only=True)
class Redrawn:
    """One checkpoint drawn again: code of each problem's end point, and shares of the stored samples and tokens."""

    code_DP: Int[np.ndarray, "draw problem"]
    samples: float
    tokens: float | None


@dataclass(frozen=True, kw_only=True)
class StoredAtK:
    """Errors of the change of pass@k at one k over all late checkpoints and draws, in points.

    Attributes:
        rms: From the change by all samples; ``bias`` is the mean difference.
        rms_exact: From the exact change; ``rms_exact_all`` is that of all samples. None without exact rates.
        here: Share of 95 % intervals for these problems that contain the change by all samples.
        here_exact: Share that contain the exact change.
    """

    k: int
    rms: float
    bias: float
    rms_exact: float | None
    rms_exact_all: float | None
    here: float | None
    here_exact: float | None


@dataclass(frozen=True, kw_only=True)
class StoredRow:
    """One series under one rule. Shares of samples and tokens are of the base and of all late checkpoints together."""

    series: str
    design: str
    checkpoints: int
    problems: int
    draws: int
    samples_base: float
    samples_late: float
    share_of_samples: float
    share_of_tokens: float | None
    tokens_per_sample: float | None
    by_k: tuple[StoredAtK, ...]


def row_from(row: Mapping[str, Any]) -> StoredRow:
    """Return the row of a result file."""
    return StoredRow(**{**row, "by_k": tuple(StoredAtK(**found) for found in row["by_k"])})


def load(path: Path) -> list[StoredSamples]:
    """Return the checkpoints of every series, the base first.

    Raises ``ValueError`` if a sample has no grade.
    """
    with open_store(path) as store:
        samples = store.frame(
            """
            SELECT series, step, is_base, problem_id, sample_index, correct, n_tokens
            FROM own_samples
            WHERE NOT greedy
            ORDER BY series, is_base DESC, step, problem_id, sample_index
            """
        )
        exact = store.frame(
            """
            SELECT series, step, problem_id, least(sum(exp(logp_sum)), 1) AS rate
            FROM mode_logps
            GROUP BY ALL
            ORDER BY series, step, problem_id
            """
        )
    if samples["correct"].isna().any():
        raise ValueError(f"{path}: some samples have no grade; continue the audit")
    rates = {key: own.set_index("problem_id")["rate"] for key, own in exact.groupby(["series", "step"])}
    found = []
    for (series, step), own in samples.groupby(["series", "step"], sort=False):
        n = int(own.groupby("problem_id").size().min())
        own = own[own["sample_index"] < n]
        problems, has_lengths = own["problem_id"].unique(), not own["n_tokens"].isna().any()
        rate = rates.get((series, step))
        found.append(
            StoredSamples(
                series=str(series),
                step=int(step),
                is_base=bool(own["is_base"].iloc[0]),
                correct_PN=own["correct"].to_numpy(dtype=bool).reshape(-1, n),
                tokens_PN=own["n_tokens"].to_numpy(dtype=np.int64).reshape(-1, n) if has_lengths else None,
                rate_P=None if rate is None else rate.loc[problems].to_numpy(dtype=float),
            )
        )
    return found


def exact_pairs(stored: Sequence[StoredSamples]) -> dict[str, Pair]:
    """Return the exact rates of each late checkpoint and its base as pairs; problems are drawn with replacement."""
    bases = {one.series: one for one in stored if one.is_base}
    return {
        f"{late.series}, step {late.step}": _resampled(bases[late.series].rate_P, late.rate_P)
        for late in stored
        if not late.is_base and late.rate_P is not None and bases[late.series].rate_P is not None
    }


def _resampled(base_P: np.ndarray, late_P: np.ndarray) -> Pair:
    def pair(rng: np.random.Generator, n_problems: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = rng.integers(len(base_P), size=n_problems)
        return base_P[chosen], late_P[chosen]

    return pair


def redraw(stored: StoredSamples, rule: StoppingRule, *, draws: int, rng: np.random.Generator) -> Redrawn:
    """Draw the stored samples of every problem again, in ``draws`` random orders, until the rule stops."""
    codes, samples, tokens = [], 0, 0
    last_R = np.array(rule.rounds) - 1
    for _ in range(draws):
        order_PN = rng.permuted(np.broadcast_to(np.arange(stored.n), stored.correct_PN.shape), axis=1)
        correct_PN = np.take_along_axis(stored.correct_PN, order_PN, axis=1)
        code_P = rule.stop(correct_PN.cumsum(axis=1)[:, last_R].T)
        n_P, _ = rule.hits(code_P)
        codes.append(code_P)
        samples += int(n_P.sum())
        if stored.tokens_PN is not None:
            tokens_PN = np.take_along_axis(stored.tokens_PN, order_PN, axis=1)
            tokens += int(tokens_PN[np.arange(stored.n) < n_P[:, None]].sum())
    return Redrawn(
        code_DP=np.stack(codes),
        samples=samples / (draws * stored.correct_PN.size),
        tokens=None if stored.tokens_PN is None else tokens / (draws * int(stored.tokens_PN.sum())),
    )


def redraw_series(
    stored: Sequence[StoredSamples],
    design: str,
    rule_of: Callable[[int], StoppingRule],
    *,
    ks: Sequence[int],
    draws: int,
    rng: np.random.Generator,
) -> StoredRow:
    """Draw all checkpoints of one series again, and compare each late one with the base.

    ``rule_of`` returns the rule for a cap. The cap of a checkpoint is its number of stored samples.
    """
    base, *lates = stored
    rules = {one.step: rule_of(one.n) for one in stored}
    drawn = {one.step: redraw(one, rules[one.step], draws=draws, rng=rng) for one in stored}
    by_k = [_at_k(base, lates, rules, drawn, k) for k in ks if k <= min(one.n for one in stored)]
    all_samples = sum(one.correct_PN.size for one in stored)
    lengths = [None if one.tokens_PN is None else int(one.tokens_PN.sum()) for one in stored]
    all_tokens = None if None in lengths else sum(length for length in lengths if length is not None)
    return StoredRow(
        series=base.series,
        design=design,
        checkpoints=len(stored),
        problems=len(base.correct_PN),
        draws=draws,
        samples_base=base.n * drawn[base.step].samples,
        samples_late=float(np.mean([late.n * drawn[late.step].samples for late in lates])),
        share_of_samples=sum(one.correct_PN.size * drawn[one.step].samples for one in stored) / all_samples,
        share_of_tokens=all_tokens
        and sum(length * (drawn[one.step].tokens or 0.0) for one, length in zip(stored, lengths, strict=True) if length)
        / all_tokens,
        tokens_per_sample=all_tokens and all_tokens / all_samples,
        by_k=tuple(by_k),
    )


def _at_k(
    base: StoredSamples,
    lates: Sequence[StoredSamples],
    rules: Mapping[int, StoppingRule],
    drawn: Mapping[int, Redrawn],
    k: int,
) -> StoredAtK:
    differences, exact_differences, all_differences, reaches = [], [], [], []
    base_value, base_values_D, base_variance_D = _estimates(base, rules, drawn, k)
    for late in lates:
        late_value, late_values_D, late_variance_D = _estimates(late, rules, drawn, k)
        differences.append(late_values_D - base_values_D - (late_value - base_value))
        if base_variance_D is not None and late_variance_D is not None:
            reaches.append(reach_here(base_variance_D + late_variance_D, len(base.correct_PN)))
        if base.rate_P is not None and late.rate_P is not None:
            exact = float(np.mean((1 - base.rate_P) ** k - (1 - late.rate_P) ** k))
            exact_differences.append(late_values_D - base_values_D - exact)
            all_differences.append(late_value - base_value - exact)
    return StoredAtK(
        k=k,
        rms=_rms(differences),
        bias=100 * float(np.mean(differences)),
        rms_exact=_rms(exact_differences) if exact_differences else None,
        rms_exact_all=_rms(all_differences) if all_differences else None,
        here=_share(differences, reaches),
        here_exact=_share(exact_differences, reaches),
    )


def _estimates(
    stored: StoredSamples, rules: Mapping[int, StoppingRule], drawn: Mapping[int, Redrawn], k: int
) -> tuple[float, np.ndarray, np.ndarray | None]:
    """Return mean pass@k by all samples and by each draw, and the summed variance of each draw."""
    rule, code_DP = rules[stored.step], drawn[stored.step].code_DP
    everything = StoppingRule(rounds=(stored.n,), enough=1).pass_at_k_table([k])[:, 0]
    variance_D = rule.covariance_table([k])[code_DP, 0, 0].sum(axis=1) if 2 * k <= rule.cap else None
    values_D = rule.pass_at_k_table([k])[code_DP, 0].mean(axis=1)
    return float(everything[stored.correct_PN.sum(axis=1)].mean()), values_D, variance_D


def _rms(differences: Sequence[np.ndarray | float]) -> float:
    return 100 * float(np.sqrt(np.mean(np.square(differences))))


def _share(differences: Sequence[np.ndarray], reaches: Sequence[np.ndarray]) -> float | None:
    if not differences or not reaches:
        return None
    return float(np.mean(np.abs(differences) <= np.array(reaches)))


def by_series(stored: Sequence[StoredSamples]) -> Iterator[list[StoredSamples]]:
    """Yield the checkpoints of each series, the base first."""
    for series in dict.fromkeys(one.series for one in stored):
        yield [one for one in stored if one.series == series]
