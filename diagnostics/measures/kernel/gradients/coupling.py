"""The gradient kernel of every checkpoint as arrays.

K_ij = ⟨∇ log π(y_i|x_i), ∇ log π(y_j|x_j)⟩ over all trainable parameters. There are three normalisations. ``sum`` is K
itself, with log π summed over tokens; its diagonal grows with the length of responses. ``per token`` is K_ij/(T_i·T_j),
where T is the number of tokens. ``cosine`` is K_ij/√(K_ii·K_jj). It is the primary one, because it compares responses
of any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures.contract import Evidence, Result, cached_per_evidence
from oversharp.diagnostics.measures.declare import Input, Loaded
from oversharp.diagnostics.measures.kernel.gradients.batch import TrainingBatch, make_batch
from oversharp.diagnostics.statistics.intervals import mean_interval, share_interval
from oversharp.diagnostics.statistics.units import Interval
from oversharp.diagnostics.theory.coupling import cosine_kernel, kernel_of_means

NO_KERNEL = "no checkpoint has a kernel (see kernel_certificate); run the audit with --kernel-problems 8"
NO_FIXED = "no response of the panel and no mode is in the kernel; run the audit with --panel 4"
NO_GRADIENT = "the gradient of every response in the kernel is 0: the model is certain of all of them"
NOT_STORED = "this checkpoint has no kernel; run the audit again"
NO_OWN = "no own sample is in the kernel; own samples need temperature 1 without top-p and top-k"

#: Eigenvalues below this share of the largest one count as rounding, because gradients are computed in float32.
RESOLUTION = 1e-6
#: If log π is above this value, the gradient has fewer than two correct digits, because float32 rounds 1 − π at 6e-8.
CERTAIN_NATS = -5e-6


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Distinct responses and their kernel. ``logp_N`` is in nats, summed over tokens."""

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
        """K_ij/√(K_ii·K_jj). Raises ``ValueError`` for a row without gradient; see ``live``."""
        return cosine_kernel(self.kernel_NN)

    @property
    def per_token(self) -> Float[np.ndarray, "row row"]:
        """K_ij/(T_i·T_j), the kernel of log-probabilities averaged over tokens."""
        return kernel_of_means(self.kernel_NN, self.n_tokens_N)

    def live(self) -> Rows:
        """Return the rows whose gradient is above rounding. The model is certain of the other rows."""
        return self.take(np.flatnonzero((np.diag(self.kernel_NN) > 0.0) & (self.logp_N < CERTAIN_NATS)))

    def take(self, place: np.ndarray) -> Rows:
        """Return the rows at these indices, with the kernel between them."""
        return Rows(
            kernel_NN=self.kernel_NN[np.ix_(place, place)],
            logp_N=self.logp_N[place],
            n_tokens_N=self.n_tokens_N[place],
            problem_N=self.problem_N[place],
            related_N=self.related_N[place],
            response_N=self.response_N[place],
            correct_N=self.correct_N[place],
        )

    def by_problem(self) -> Iterator[Rows]:
        """Yield the rows of each problem, in the order of problem ids."""
        for problem_id in np.unique(self.problem_N):
            yield self.take(np.flatnonzero(self.problem_N == problem_id))


@dataclass(frozen=True, kw_only=True)
class Coupling:
    """The kernel of one checkpoint, and which of its rows have which role.

    Attributes:
        fixed_F: rows of the panel and the modes, which are the same responses at every checkpoint.
        own_S: row of each of the checkpoint's own samples.
        batch_S: row of each response that the trainer sampled between this checkpoint and the next.

    ``own_S`` and ``batch_S`` include duplicates and are sorted by problem and index.
    """

    rows: Rows
    fixed_F: Int[np.ndarray, " member"]
    own_S: Int[np.ndarray, " draw"]
    batch_S: Int[np.ndarray, " draw"]

    @property
    def fixed(self) -> Rows:
        """The rows of the panel and the modes."""
        return self.rows.take(self.fixed_F)

    def batches(self, draw_S: Int[np.ndarray, " draw"]) -> Iterator[TrainingBatch]:
        """Yield the samples of each problem as a batch, whose modes are rows of the kernel."""
        problem_S = self.rows.problem_N[draw_S]
        for problem_id in np.unique(problem_S):
            position_S = draw_S[problem_S == problem_id]
            yield make_batch(str(problem_id), position_S, self.rows.correct_N[position_S])

    def aligned_kernel(self, batch: TrainingBatch) -> Float[np.ndarray, "draw draw"]:
        """Return the batch's kernel with the advantages' signs moved into the gradients ([A] 2.3)."""
        sign_S = np.sign(batch.advantage_S)
        return self.rows.kernel_NN[np.ix_(batch.mode_S, batch.mode_S)] * sign_S[:, None] * sign_S

    def informative_batches(self) -> list[TrainingBatch]:
        """Return the mixed batches (correct and wrong own samples) in which all have a gradient."""
        live_N = np.diag(self.rows.kernel_NN) > 0.0
        return [batch for batch in self.batches(self.own_S) if batch.is_informative and live_N[batch.mode_S].all()]


@cached_per_evidence
def load_couplings(evidence: Evidence) -> Loaded[Coupling]:
    """Load the kernel of every checkpoint that has one."""
    runs, members, pairs = (evidence.frames[view] for view in ("kernel_runs", "kernel_members", "kernel_pairs"))
    why_of = runs.set_index("checkpoint_id")["why"]
    members_of = dict(iter(members.groupby("checkpoint_id")))
    pairs_of = dict(iter(pairs.groupby("checkpoint_id")))
    kernels, why = {}, {}
    for checkpoint_id in evidence.checkpoint_ids:
        if checkpoint_id in members_of and checkpoint_id in pairs_of:
            kernels[checkpoint_id] = build_coupling(members_of[checkpoint_id], pairs_of[checkpoint_id])
            continue
        why_not = why_of.get(checkpoint_id)
        why[checkpoint_id] = str(why_not) if isinstance(why_not, str) else NOT_STORED
    return kernels, why


def load_fixed_rows(evidence: Evidence) -> Loaded[Rows]:
    """Load the rows of the panel and the modes from every kernel."""
    kernels, why = load_couplings(evidence)
    fixed = {checkpoint_id: coupling.fixed for checkpoint_id, coupling in kernels.items()}
    empty = {checkpoint_id: NO_FIXED for checkpoint_id, rows in fixed.items() if not len(rows)}
    return fixed, {**why, **empty}


def load_live_rows(evidence: Evidence) -> Loaded[Rows]:
    """Load the rows of the panel and the modes that have a gradient, from every kernel."""
    fixed, why = load_fixed_rows(evidence)
    live = {checkpoint_id: rows.live() for checkpoint_id, rows in fixed.items()}
    empty = {checkpoint_id: NO_GRADIENT for checkpoint_id, rows in live.items() if not len(rows)}
    return live, {**empty, **why}


KERNEL_VIEWS = ("kernel_runs", "kernel_members", "kernel_pairs")
COUPLINGS = Input(load=load_couplings, needs=KERNEL_VIEWS, missing=NO_KERNEL)
FIXED_ROWS = Input(load=load_fixed_rows, needs=KERNEL_VIEWS, missing=NO_KERNEL)
LIVE_ROWS = Input(load=load_live_rows, needs=KERNEL_VIEWS, missing=NO_KERNEL)


def build_coupling(members: pd.DataFrame, pairs: pd.DataFrame) -> Coupling:
    """Return the coupling of one checkpoint from ``kernel_members`` and ``kernel_pairs``."""
    responses = members.sort_values("position").drop_duplicates("position").set_index("position")
    n_rows = len(responses)
    row_E, column_E = (pairs[name].to_numpy(dtype=np.int64) for name in ("row_position", "column_position"))
    kernel_NN = np.zeros((n_rows, n_rows))
    kernel_NN[row_E, column_E] = kernel_NN[column_E, row_E] = pairs["value"].to_numpy(dtype=np.float64)
    rows = Rows(
        kernel_NN=kernel_NN,
        logp_N=responses["logp_sum"].to_numpy(dtype=np.float64),
        n_tokens_N=responses["n_tokens"].to_numpy(dtype=np.int64),
        problem_N=responses["problem_id"].to_numpy(dtype=str),
        related_N=responses["related"].to_numpy(dtype=str),
        response_N=responses["response_id"].to_numpy(dtype=str),
        correct_N=responses["correct"].to_numpy(dtype=bool),
    )
    draws = members.sort_values(["problem_id", "sample_index"])

    def positions(role: str) -> Int[np.ndarray, " draw"]:
        return draws.loc[draws["role"] == role, "position"].to_numpy(dtype=np.int64)

    fixed = members.loc[members["role"].isin(["panel", "mode"]), "position"]
    # sort by content, because the order of rows in a kernel is arbitrary
    fixed_F = np.unique(fixed.to_numpy(dtype=np.int64))
    fixed_F = fixed_F[np.lexsort((rows.response_N[fixed_F], ~rows.correct_N[fixed_F], rows.problem_N[fixed_F]))]
    return Coupling(rows=rows, fixed_F=fixed_F, own_S=positions("own"), batch_S=positions("batch"))


def match_rows(before: Rows, after: Rows) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
    """Return the indices of common responses in both, in the order of ``before``."""
    keys = list(zip(after.problem_N, after.response_N, strict=True))
    place = {key: i for i, key in enumerate(keys)}
    pairs = [
        (i, place[key]) for i, key in enumerate(zip(before.problem_N, before.response_N, strict=True)) if key in place
    ]
    places = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
    return places[:, 0], places[:, 1]


def mean_diagonal(kernel_NN: Float[np.ndarray, "row row"]) -> float:
    """Return λ̄, the mean of K_ii."""
    return float(np.mean(np.diag(kernel_NN)))


def off_diagonal(kernel_NN: Float[np.ndarray, "row row"]) -> Float[np.ndarray, " pair"]:
    """Return K_ij of every pair i < j."""
    return kernel_NN[np.triu_indices(len(kernel_NN), k=1)]


def average_over_problems(values: Sequence[float], *, why_none: str, is_share: bool = False) -> Result:
    """Return the mean over problems with its interval, or ``why_none`` if there is no value."""
    if not values:
        return why_none
    value_P = np.array(values, dtype=np.float64)
    return share_interval(value_P) if is_share else mean_interval(value_P)


def number(value: float, n: int) -> Interval:
    """Return the value as a result without interval."""
    return Interval(mean=float(value), low=None, high=None, n=n)
