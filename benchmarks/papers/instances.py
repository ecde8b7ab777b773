"""Random instances of the closed forms: batches of a query, and gradient kernels. Each is drawn from its own seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from benchmarks.papers.theory.sampling_bias import binary_advantages
from oversharp.diagnostics.theory.coupling import KernelExtremes, kernel_extremes, target_shifts

BATCHES = (
    "1 to 5 correct and 1 to 5 wrong modes, π_ref from a Dirichlet with α = .5, G in {4, 8, 16, 32} samples of π_ref "
    "with both kinds among them, normalised advantages, β log-uniform in [.01, 1]"
)
KERNELS = (
    "gradients with a common part (cosines about .05 to .5) and lengths within ±10 %, only those with A2.1 and A2.3, "
    "A2.2 exact; λ and ρ over distinct modes; pseudo-inverse"
)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Modes of one query with their numbers of samples.

    At least one correct and one wrong mode were sampled.
    """

    reference_K: Float[np.ndarray, " mode"]
    correct_K: Bool[np.ndarray, " mode"]
    count_K: Int[np.ndarray, " mode"]
    beta: float

    @property
    def group_size(self) -> int:
        """Samples in the batch, G."""
        return int(self.count_K.sum())

    @property
    def accuracy(self) -> float:
        """Share of correct samples, p⁺."""
        return float(self.count_K[self.correct_K].sum()) / self.group_size

    @property
    def advantages(self) -> Float[np.ndarray, " mode"]:
        """Binary rewards, shifted by p⁺ and divided by the population deviation."""
        plus, minus = binary_advantages(int(self.count_K[self.correct_K].sum()), self.group_size)
        return np.where(self.correct_K, plus, minus)


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A batch of G samples (``mode_G``), its kernel, and its kernel with one unsampled mode."""

    kernel_GG: Float[np.ndarray, "sample sample"]
    unseen_G: Float[np.ndarray, " sample"]
    mode_G: Int[np.ndarray, " sample"]
    target_G: Float[np.ndarray, " sample"]
    eta: float

    @property
    def extremes(self) -> KernelExtremes:
        """λ and ρ over distinct modes."""
        return kernel_extremes(self.kernel_GG, self.mode_G)


def batches(n: int, seed: int) -> Iterator[Batch]:
    """``n`` batches, see :data:`BATCHES`."""
    random = np.random.default_rng([seed, 1])
    found = 0
    while found < n:
        n_correct, n_wrong = random.integers(1, 6, size=2)
        reference_K = random.dirichlet(np.full(n_correct + n_wrong, 0.5))
        reference_K = np.maximum(reference_K, 1e-9) / np.maximum(reference_K, 1e-9).sum()
        batch = Batch(
            reference_K=reference_K,
            correct_K=np.arange(n_correct + n_wrong) < n_correct,
            count_K=random.multinomial(int(random.choice([4, 8, 16, 32])), reference_K),
            beta=float(10 ** random.uniform(-2, 0)),
        )
        if 0 < batch.accuracy < 1:
            found += 1
            yield batch


def kernels(n: int, seed: int, *, repeats: bool) -> Iterator[Kernel]:
    """Draw ``n`` kernels, see :data:`KERNELS`.

    With ``repeats`` some mode is sampled more than once, otherwise none is.
    """
    random = np.random.default_rng([seed, 2, repeats])
    found = 0
    while found < n:
        group = int(random.choice([4, 8]))
        n_modes = int(random.integers(2, group)) if repeats else group
        common = np.sqrt(random.uniform(0.05, 0.5))
        noise = random.standard_normal((n_modes + 1, 48)) / np.sqrt(48)
        direction = random.standard_normal(48) / np.sqrt(48)
        rows = common * direction + np.sqrt(1 - common**2) * noise
        rows *= random.uniform(0.9, 1.1, size=(n_modes + 1, 1))
        gram = rows @ rows.T
        off = gram[~np.eye(n_modes + 1, dtype=bool)]
        if off.min() <= 0 or gram.diagonal().min() < off.max():
            continue
        extra = random.choice(n_modes, size=group - n_modes, p=random.dirichlet(np.ones(n_modes)))
        mode_G = np.concatenate([np.arange(n_modes), extra]).astype(np.int64)
        beta = float(10 ** random.uniform(-2, 0))
        advantage_G = random.uniform(0.2, 2.0, size=n_modes)[mode_G]
        found += 1
        yield Kernel(
            kernel_GG=gram[np.ix_(mode_G, mode_G)],
            unseen_G=gram[n_modes, mode_G],
            mode_G=mode_G,
            target_G=target_shifts(mode_G, advantage_G, beta=beta),
            eta=float(random.uniform(0.05, 1.0)),
        )
