"""The gradient kernel of every checkpoint as arrays: which responses it couples, and how strongly.

K_ij = ⟨∇ log π(y_i|x_i), ∇ log π(y_j|x_j)⟩ over all trainable parameters. Three normalisations: ``sum`` is K itself
(log π summed over tokens; its diagonal grows with the length), ``per token`` is K_ij/(T_i·T_j), ``cosine`` is
K_ij/√(K_ii·K_jj) and the primary one, for it compares responses of any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures._batch import TrainingBatch, batch_of
from oversharp.diagnostics.measures._findings import checkpoint_ids
from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.theory.coupling import cosine_kernel, kernel_of_means

NO_KERNEL = "no checkpoint has a kernel; kernel_certificate says why, or run the audit with --kernel-problems 8"
NO_FIXED = "no response of the panel and no mode is in the kernel; run the audit with --panel 4"
NO_GRADIENT = "the gradient of every response in the kernel is 0: the model is certain of all of them"
NO_OWN = "no own sample is in the kernel: only those drawn at temperature 1 and untruncated are"

#: Eigenvalues below this part of the largest are rounding: gradients are computed in float32.
RESOLUTION = 1e-6


#: Above it log π leaves the gradient fewer than two right digits: 1 − π is what float32 rounds at 6e-8.
CERTAIN_NATS = -5e-6


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Distinct responses, the kernel between them, and what is known of each; ``logp_N`` in nats, over all tokens."""

    kernel_NN: Float[np.ndarray, "row row"]
    logp_N: Float[np.ndarray, " row"]
    n_tokens_N: Int[np.ndarray, " row"]
    problem_N: np.ndarray
    related_N: np.ndarray
    response_N: np.ndarray
    correct_N: Bool[np.ndarray, " row"]

    def __len__(self) -> int:
        return len(self.logp_N)

    @property
    def cosines(self) -> Float[np.ndarray, "row row"]:
        """K_ij/√(K_ii·K_jj). Raises ``ValueError`` for a row without gradient: see ``live``."""
        return cosine_kernel(self.kernel_NN)

    @property
    def per_token(self) -> Float[np.ndarray, "row row"]:
        """K_ij/(T_i·T_j): the kernel of log-probabilities averaged over tokens."""
        return kernel_of_means(self.kernel_NN, self.n_tokens_N)

    def live(self) -> Rows:
        """Without the rows whose gradient is 0 or drowns in rounding: the model is certain of these responses."""
        return self.take(np.flatnonzero((np.diag(self.kernel_NN) > 0.0) & (self.logp_N < CERTAIN_NATS)))

    def take(self, at: np.ndarray) -> Rows:
        """The rows ``at`` and the kernel between them."""
        return Rows(
            kernel_NN=self.kernel_NN[np.ix_(at, at)],
            logp_N=self.logp_N[at],
            n_tokens_N=self.n_tokens_N[at],
            problem_N=self.problem_N[at],
            related_N=self.related_N[at],
            response_N=self.response_N[at],
            correct_N=self.correct_N[at],
        )

    def by_problem(self) -> Iterator[Rows]:
        """The rows of each problem, in the order of problem ids."""
        for problem_id in np.unique(self.problem_N):
            yield self.take(np.flatnonzero(self.problem_N == problem_id))


@dataclass(frozen=True, kw_only=True)
class Coupling:
    """The kernel of one checkpoint. Positions count all rows; ``fixed_F`` are those of the panel and the modes.

    ``own_S`` and ``batch_S`` hold the position of every draw, duplicates included, sorted by problem and index: the
    checkpoint's own samples, and the trainer's between this checkpoint and the next.
    """

    rows: Rows
    fixed_F: Int[np.ndarray, " member"]
    own_S: Int[np.ndarray, " draw"]
    batch_S: Int[np.ndarray, " draw"]

    @property
    def fixed(self) -> Rows:
        """The fixed members: the same responses at every checkpoint."""
        return self.rows.take(self.fixed_F)

    def batches(self, draw_S: Int[np.ndarray, " draw"]) -> Iterator[TrainingBatch]:
        """The draws of each problem as a batch whose modes are positions in the kernel."""
        problem_S = self.rows.problem_N[draw_S]
        for problem_id in np.unique(problem_S):
            position_S = draw_S[problem_S == problem_id]
            yield batch_of(str(problem_id), position_S, self.rows.correct_N[position_S])

    def aligned_kernel(self, batch: TrainingBatch) -> Float[np.ndarray, "draw draw"]:
        """The batch's kernel with the sign of every advantage in its gradient, as [A] 2.3 has it."""
        sign_S = np.sign(batch.advantage_S)
        return self.rows.kernel_NN[np.ix_(batch.mode_S, batch.mode_S)] * sign_S[:, None] * sign_S

    def informative(self) -> list[TrainingBatch]:
        """The own batches that hold correct and wrong responses, all of them with a gradient."""
        live_N = np.diag(self.rows.kernel_NN) > 0.0
        return [batch for batch in self.batches(self.own_S) if batch.is_informative and live_N[batch.mode_S].all()]


def couplings(evidence: Evidence) -> tuple[Mapping[str, Coupling], Mapping[str, str]]:
    """The kernel of every checkpoint that has one, and why the others have none."""
    return evidence.once(_couplings)


def fixed_couplings(evidence: Evidence) -> tuple[Mapping[str, Rows], Mapping[str, str]]:
    """The fixed members of every kernel, and why a checkpoint has none."""
    return evidence.once(_fixed_couplings)


def _couplings(evidence: Evidence) -> tuple[Mapping[str, Coupling], Mapping[str, str]]:
    runs, members, pairs = (evidence.frames[view] for view in ("kernel_runs", "kernel_members", "kernel_pairs"))
    why_not = runs.set_index("checkpoint_id")["why"]
    members_of = dict(iter(members.groupby("checkpoint_id")))
    pairs_of = dict(iter(pairs.groupby("checkpoint_id")))
    found, why = {}, {}
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in members_of and checkpoint_id in pairs_of:
            found[checkpoint_id] = coupling_of(members_of[checkpoint_id], pairs_of[checkpoint_id])
            continue
        told = why_not.get(checkpoint_id)
        why[checkpoint_id] = (
            str(told) if isinstance(told, str) else "this checkpoint has no kernel; run the audit again"
        )
    return found, why


def _fixed_couplings(evidence: Evidence) -> tuple[Mapping[str, Rows], Mapping[str, str]]:
    found, why = couplings(evidence)
    fixed = {checkpoint_id: coupling.fixed for checkpoint_id, coupling in found.items()}
    without = {checkpoint_id: NO_FIXED for checkpoint_id, rows in fixed.items() if not len(rows)}
    return {checkpoint_id: rows for checkpoint_id, rows in fixed.items() if len(rows)}, {**why, **without}


def coupling_of(members: pd.DataFrame, pairs: pd.DataFrame) -> Coupling:
    """From the rows of the views ``kernel_members`` and ``kernel_pairs`` of one checkpoint."""
    facts = members.sort_values("position").drop_duplicates("position").set_index("position")
    n_rows = len(facts)
    row_E, column_E = (pairs[name].to_numpy(dtype=np.int64) for name in ("row_position", "column_position"))
    kernel_NN = np.zeros((n_rows, n_rows))
    kernel_NN[row_E, column_E] = kernel_NN[column_E, row_E] = pairs["value"].to_numpy(dtype=np.float64)
    rows = Rows(
        kernel_NN=kernel_NN,
        logp_N=facts["logp_sum"].to_numpy(dtype=np.float64),
        n_tokens_N=facts["n_tokens"].to_numpy(dtype=np.int64),
        problem_N=facts["problem_id"].to_numpy(dtype=str),
        related_N=facts["related"].to_numpy(dtype=str),
        response_N=facts["response_id"].to_numpy(dtype=str),
        correct_N=facts["correct"].to_numpy(dtype=bool),
    )
    draws = members.sort_values(["problem_id", "sample_index"])

    def drawn(role: str) -> Int[np.ndarray, " draw"]:
        return draws.loc[draws["role"] == role, "position"].to_numpy(dtype=np.int64)

    fixed = members.loc[members["role"].isin(["panel", "mode"]), "position"]
    # By content and not by position: the order of rows in a kernel is no fact about the model.
    fixed_F = np.unique(fixed.to_numpy(dtype=np.int64))
    fixed_F = fixed_F[np.lexsort((rows.response_N[fixed_F], ~rows.correct_N[fixed_F], rows.problem_N[fixed_F]))]
    return Coupling(rows=rows, fixed_F=fixed_F, own_S=drawn("own"), batch_S=drawn("batch"))


def matched(before: Rows, after: Rows) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
    """Where the responses that both hold stand in either, in the order of ``before``."""
    keys = list(zip(after.problem_N, after.response_N, strict=True))
    place = {key: i for i, key in enumerate(keys)}
    both = [
        (i, place[key]) for i, key in enumerate(zip(before.problem_N, before.response_N, strict=True)) if key in place
    ]
    at = np.array(both, dtype=np.int64).reshape(len(both), 2)
    return at[:, 0], at[:, 1]


def mean_diagonal(kernel_NN: Float[np.ndarray, "row row"]) -> float:
    """λ̄: the mean of K_ii."""
    return float(np.mean(np.diag(kernel_NN)))


def off_diagonal(kernel_NN: Float[np.ndarray, "row row"]) -> Float[np.ndarray, " pair"]:
    """K_ij of every pair i < j."""
    return kernel_NN[np.triu_indices(len(kernel_NN), k=1)]
