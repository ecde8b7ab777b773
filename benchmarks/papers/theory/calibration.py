"""[A] 3: advantages and sampling distributions that are meant to keep Z′(q) small.

Axis ``G`` is the samples of one group, ``PG`` prompts by samples, ``V`` the actions of a softmax policy. Advantages are
in units of the reward, or of its standard deviation, as given. Source: [A] (arXiv 2601.15609), section 3.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from oversharp.diagnostics.theory._checks import distribution, softmax, vector


def inverse_probability_advantages(advantage_M: ArrayLike, reference_M: ArrayLike) -> Float[np.ndarray, " mode"]:
    """Return Ã = A / π_ref per mode, which takes the lower *bound* on Z′ to 1, not Z′ itself.

    This requires that the batch's advantages average to zero. Z′ = Σ π_ref exp(N Ã/(βG)) ≥ exp(Σ N A/(βG)) = 1 by
    Jensen's inequality, with equality only if N·A/π_ref is the same for all modes: every informative batch still
    suppresses the modes that it did not sample. The paper presents the calibration as one that cancels the suppression.
    Source: [A] 3.1, first display, corrected.

    >>> inverse_probability_advantages([1.0, -1.0], [0.8, 0.2]).tolist()
    [1.25, -5.0]
    """
    reference_M = distribution(reference_M, "reference_M", positive=True)
    return vector(advantage_M, "advantage_M", length=len(reference_M)) / reference_M


def inverse_success_advantages(
    advantage_PG: Float[np.ndarray, "prompt group"],
    correct_PG: Bool[np.ndarray, "prompt group"],
    *,
    alpha: float,
    scale_matched: bool = False,
    as_printed: bool = False,
) -> Float[np.ndarray, "prompt group"]:
    """Return IAC's Ã = A · (G − |S⁺|)^α for correct samples with A > 0, all others unchanged.

    0⁰ = 1.

    |S⁺| counts samples, not modes. Here S⁺ is the set that the verifier accepts; ``as_printed`` uses S⁺ = {A > 0} as
    Algorithm 1 does, which under shaped rewards raises the least bad answer of an all-wrong group. The factor is at
    least 1 wherever a wrong sample exists, so IAC also takes a larger step: ``scale_matched`` sets the mean of |Ã| over
    all prompts to that of |A|. Source: [A] 3.1 and Algorithm 1.

    >>> advantage_PG, correct_PG = np.array([[3.0, -1.0, -1.0, -1.0]]), np.array([[True, False, False, False]])
    >>> inverse_success_advantages(advantage_PG, correct_PG, alpha=1.0).tolist()
    [[9.0, -1.0, -1.0, -1.0]]
    >>> inverse_success_advantages(advantage_PG, correct_PG, alpha=1.0, scale_matched=True).tolist()
    [[4.5, -0.5, -0.5, -0.5]]
    """
    advantage_PG = np.asarray(advantage_PG, dtype=np.float64)
    correct_PG = np.asarray(correct_PG)
    if advantage_PG.ndim != 2 or advantage_PG.shape != correct_PG.shape or correct_PG.dtype != np.bool_:
        raise ValueError(
            "advantage_PG and correct_PG: need the same shape, prompts by samples, the second of booleans; "
            f"got {advantage_PG.shape} and {correct_PG.dtype} of {correct_PG.shape}"
        )
    if alpha < 0.0:
        raise ValueError(f"alpha: needs a number from 0; got {alpha}")
    success_PG = advantage_PG > 0.0 if as_printed else correct_PG
    factor_P1 = (~success_PG).sum(axis=1, keepdims=True).astype(np.float64) ** alpha
    calibrated_PG = np.where(success_PG & (advantage_PG > 0.0), advantage_PG * factor_P1, advantage_PG)
    if scale_matched and calibrated_PG.any():
        return calibrated_PG * (np.abs(advantage_PG).mean() / np.abs(calibrated_PG).mean())
    return calibrated_PG


def calibrated_sampling(logit_V: ArrayLike, memory_logit_V: ArrayLike, *, mu: float) -> Float[np.ndarray, " action"]:
    """Return DLC's sampling distribution softmax(f_θ − μ f_φ), f_φ the logits of a memory of earlier samples.

    Samples then come from a distribution other than the policy: an update without importance weights is biased. In the
    paper's toy world that bias is the whole benefit; with exact weights it vanishes. Source: [A] 3.2.

    >>> calibrated_sampling([1.0, 0.0], [2.0, 0.0], mu=0.5).tolist()
    [0.5, 0.5]
    """
    logit_V = vector(logit_V, "logit_V")
    if mu < 0.0:
        raise ValueError(f"mu: needs a number from 0; got {mu}")
    return softmax(logit_V - mu * vector(memory_logit_V, "memory_logit_V", length=len(logit_V)))
