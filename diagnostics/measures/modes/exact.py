"""Exact probabilities of all correct modes, for problems that list them.

For such a problem a response is correct if and only if it is one of the modes. So teacher forcing gives the success
probability p⁺ = Σ π(mode | problem) without sampling noise. It also decides whether Definition 2.1 of [A] (arXiv
2601.15609), over-sharpening, applies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures.contract import Evidence, cached_per_evidence
from oversharp.diagnostics.measures.declare import Input, Loaded

#: Numeric noise of scoring: the largest difference of two float32 scores of a response under the same weights, caused
#: by other batch shapes and kernels. Smaller falls count as no change, which is moderate by Definition 2.1 of [A].
NOISE_NATS = 1e-4
NO_MODES = "the problems do not list every accepted response (modes), so exact probabilities are unknown"
ALL_IMPOSSIBLE = "every mode of every problem has probability 0"


@dataclass(frozen=True, kw_only=True)
class ExactModes:
    """Log-probabilities of all modes at one checkpoint, sorted by problem and mode.

    Attributes:
        problem_M: index of each mode's problem.
        start_P: index of each problem's first mode.
        logp_M: log-probability of each mode in nats, summed over its tokens.
        cluster_P: cluster of each problem if the audit has clusters.
    """

    problem_M: Int[np.ndarray, " mode"]
    start_P: Int[np.ndarray, " problem"]
    logp_M: Float[np.ndarray, " mode"]
    cluster_P: Int[np.ndarray, " problem"] | None = None

    @property
    def why_undivided(self) -> str | None:
        """The reason why no two modes share probability, or None."""
        return "every problem lists a single accepted response" if len(self.problem_M) == self.n_problems else None

    @property
    def n_problems(self) -> int:
        """The number of problems that list their modes."""
        return len(self.start_P)

    def sum_by_problem(self, values_M: Float[np.ndarray, " mode"]) -> Float[np.ndarray, " problem"]:
        """Sum ``values_M`` over the modes of each problem."""
        return np.bincount(self.problem_M, weights=values_M, minlength=self.n_problems)

    @cached_property
    def success_probability(self) -> Float[np.ndarray, " problem"]:
        """p⁺ of each problem, the sum of its modes' probabilities, clipped to 1 after rounding."""
        return np.minimum(self.sum_by_problem(np.exp(self.logp_M)), 1.0)

    def conditional_shares(self) -> tuple[Float[np.ndarray, " mode"], Bool[np.ndarray, " problem"]]:
        """Return π(mode | correct), and a mask of the problems with a mode of positive probability."""
        top_P = np.maximum.reduceat(self.logp_M, self.start_P)
        is_possible_P = np.isfinite(top_P)
        # relative to the most likely mode, so that probabilities of long responses do not underflow
        weight_M = np.exp(self.logp_M - np.where(is_possible_P, top_P, 0.0)[self.problem_M])
        total_P = self.sum_by_problem(weight_M)
        return weight_M / np.where(is_possible_P, total_P, 1.0)[self.problem_M], is_possible_P

    def change_nats(self, before: ExactModes) -> Float[np.ndarray, " mode"]:
        """Return log π(mode) − log π_before(mode) in nats, 0 if both probabilities are 0."""
        is_same_M = before.logp_M == self.logp_M  # includes −inf = −inf, whose difference would be NaN
        now_M, before_M = np.where(is_same_M, 0.0, self.logp_M), np.where(is_same_M, 0.0, before.logp_M)
        return np.where(is_same_M, 0.0, now_M - before_M)

    def by_likelihood(self) -> Int[np.ndarray, " mode"]:
        """Return the indices of the modes, sorted by problem and descending probability."""
        return np.lexsort((-self.logp_M, self.problem_M))


def pass_at_k_from_success(success_P: Float[np.ndarray, " problem"], k: int) -> Float[np.ndarray, " problem"]:
    """Return 1 − (1 − p⁺)^k, accurate also for small p⁺."""
    is_certain_P = success_P >= 1.0
    return np.where(is_certain_P, 1.0, -np.expm1(k * np.log1p(-np.where(is_certain_P, 0.0, success_P))))


@cached_per_evidence
def load_exact_modes(evidence: Evidence) -> Loaded[ExactModes]:
    """Load the view ``mode_logps``."""
    ids = evidence.checkpoint_ids
    table = (
        evidence.frames["mode_logps"]
        .pivot(index=["problem_id", "mode"], columns="checkpoint_id", values="logp_sum")
        .reindex(columns=ids)
    )
    problem_M, problem_ids = table.index.get_level_values("problem_id").factorize()
    scored = table.notna().sum()
    why = {
        i: f"{int(scored[i])} of {len(table)} modes are scored here; run the audit again to complete them"
        for i in ids
        if scored[i] < len(table)
    }
    start_P = np.flatnonzero(np.diff(problem_M, prepend=-1))
    cluster_P = evidence.clusters(map(str, problem_ids))
    modes = {
        i: ExactModes(
            problem_M=problem_M, start_P=start_P, logp_M=table[i].to_numpy(dtype=np.float64), cluster_P=cluster_P
        )
        for i in ids
        if i not in why
    }
    return modes, why


EXACT_MODES = Input(load=load_exact_modes, needs=("mode_logps",), missing=NO_MODES)
