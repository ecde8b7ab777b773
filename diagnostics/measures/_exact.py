"""Exact probabilities of all correct modes, where a problem's accepted responses can be enumerated.

There, a response is correct if and only if it is one of the modes, so teacher forcing gives the success probability
p⁺ = Σ π(mode | problem) without sampling noise, and Definition 2.1 of [A] (arXiv 2601.15609) is decided, not estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures._findings import checkpoint_ids
from oversharp.diagnostics.measures.contract import Evidence

#: Two fp32 scores of the same response under the same weights differ by up to this much (batch shape, kernels).
#: A smaller fall is no fall: Definition 2.1 counts equality as moderate.
NOISE_NATS = 1e-4
NO_MODES = "the problems do not list every accepted response (modes), so exact probabilities are unknown"


@dataclass(frozen=True, kw_only=True)
class ExactModes:
    """Log-probabilities of all modes, sorted by problem and mode, at each completely scored checkpoint.

    ``problem_M`` numbers the problem of each mode; the modes of problem i start at ``start_P[i]``.
    ``why`` has the reason for every checkpoint that is not in ``logp_M`` (nats, summed over tokens). ``cluster_P``
    numbers the cluster of each problem where any are named.
    """

    problem_M: Int[np.ndarray, " mode"]
    start_P: Int[np.ndarray, " problem"]
    logp_M: Mapping[str, Float[np.ndarray, " mode"]]
    why: Mapping[str, str]
    cluster_P: Int[np.ndarray, " problem"] | None = None

    @property
    def one_each(self) -> str | None:
        """Why nothing can be said of how modes share the probability, if so."""
        return "every problem lists one accepted response alone" if len(self.problem_M) == self.n_problems else None

    @property
    def n_problems(self) -> int:
        """Problems that list their modes."""
        return len(self.start_P)

    def sum_by_problem(self, values_M: Float[np.ndarray, " mode"]) -> Float[np.ndarray, " problem"]:
        """Sum over the modes of each problem."""
        return np.bincount(self.problem_M, weights=values_M, minlength=self.n_problems)

    def success_probabilities(self, checkpoint_id: str) -> Float[np.ndarray, " problem"]:
        """p⁺ of each problem; rounding in the scores cannot push it above 1."""
        return np.minimum(self.sum_by_problem(np.exp(self.logp_M[checkpoint_id])), 1.0)

    def conditional_shares(self, checkpoint_id: str) -> tuple[Float[np.ndarray, " mode"], Bool[np.ndarray, " problem"]]:
        """π(mode | correct), and which problems have it (not those where every mode has probability 0)."""
        logp_M = self.logp_M[checkpoint_id]
        top_P = np.maximum.reduceat(logp_M, self.start_P)
        possible_P = np.isfinite(top_P)
        # Relative to the likeliest mode, so that long responses do not underflow.
        weight_M = np.exp(logp_M - np.where(possible_P, top_P, 0.0)[self.problem_M])
        total_P = self.sum_by_problem(weight_M)
        return weight_M / np.where(possible_P, total_P, 1.0)[self.problem_M], possible_P

    def change_nats(self, base_id: str, checkpoint_id: str) -> Float[np.ndarray, " mode"]:
        """log π_t(mode) − log π_base(mode) in nats; 0 where both are impossible."""
        before_M, now_M = self.logp_M[base_id], self.logp_M[checkpoint_id]
        same_M = before_M == now_M  # also −inf = −inf, whose difference is undefined
        return np.where(same_M, 0.0, np.where(same_M, 0.0, now_M) - np.where(same_M, 0.0, before_M))


def pass_at_k_from_success(success_P: Float[np.ndarray, " problem"], k: int) -> Float[np.ndarray, " problem"]:
    """1 − (1 − p⁺)^k without cancellation for small p⁺."""
    certain_P = success_P >= 1.0
    return np.where(certain_P, 1.0, -np.expm1(k * np.log1p(-np.where(certain_P, 0.0, success_P))))


def exact_modes(evidence: Evidence) -> ExactModes:
    """The view ``mode_logps`` as arrays."""
    return evidence.once(_exact_modes)


def _exact_modes(evidence: Evidence) -> ExactModes:
    frame = evidence.frames["mode_logps"]
    ids = checkpoint_ids(evidence)
    if frame.empty:
        nothing = np.array([], dtype=np.int64)
        why = dict.fromkeys(ids, "no mode of any problem is scored")
        return ExactModes(problem_M=nothing, start_P=nothing, logp_M={}, why=why)
    table = frame.pivot(index=["problem_id", "mode"], columns="checkpoint_id", values="logp_sum").reindex(columns=ids)
    problem_M, problem_ids = table.index.get_level_values("problem_id").factorize()
    scored = table.notna().sum()
    why = {
        i: f"{int(scored[i])} of {len(table)} modes are scored here; run the audit again to complete them"
        for i in ids
        if scored[i] < len(table)
    }
    return ExactModes(
        problem_M=problem_M,
        start_P=np.flatnonzero(np.diff(problem_M, prepend=-1)),
        logp_M={i: table[i].to_numpy(dtype=np.float64) for i in ids if i not in why},
        why=why,
        cluster_P=evidence.clusters(map(str, problem_ids)),
    )
