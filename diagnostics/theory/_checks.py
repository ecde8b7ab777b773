"""What every closed form asks of its input, said in one place; all arrays become float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

#: Probabilities from float32 logits sum to one within this.
SUM_TOLERANCE = 1e-6


def vector(values: ArrayLike, name: str, *, length: int | None = None) -> np.ndarray:
    """``values`` as finite float64 numbers in one axis; ``ValueError`` otherwise, or if there are not ``length``."""
    array_X = np.asarray(values, dtype=np.float64)
    if array_X.ndim != 1 or not array_X.size or not np.isfinite(array_X).all():
        raise ValueError(f"{name}: needs one axis of finite numbers, at least one; got shape {array_X.shape}")
    if length is not None and len(array_X) != length:
        raise ValueError(f"{name}: needs {length} values, one for each of the others; got {len(array_X)}")
    return array_X


def distribution(values: ArrayLike, name: str, *, positive: bool = False, length: int | None = None) -> np.ndarray:
    """``values`` as probabilities that sum to one, and are all above 0 where a logarithm is taken of them."""
    probability_X = vector(values, name, length=length)
    if probability_X.min() < 0.0 or abs(float(probability_X.sum()) - 1.0) > SUM_TOLERANCE:
        raise ValueError(f"{name}: needs probabilities that sum to 1; they sum to {float(probability_X.sum()):.6g}")
    if positive and probability_X.min() <= 0.0:
        raise ValueError(f"{name}: needs probabilities above 0; leave out what cannot happen")
    return probability_X


def counts(values: ArrayLike, name: str, *, length: int | None = None) -> np.ndarray:
    """``values`` as whole numbers from 0, with at least one above it."""
    count_X = vector(values, name, length=length)
    if count_X.min() < 0.0 or (count_X != np.round(count_X)).any() or not count_X.any():
        raise ValueError(f"{name}: needs whole numbers from 0, not all 0; got {count_X.tolist()}")
    return count_X


def flags(values: ArrayLike, name: str, *, length: int) -> np.ndarray:
    """``values`` as booleans, ``length`` of them."""
    flag_X = np.asarray(values)
    if flag_X.dtype != np.bool_ or flag_X.shape != (length,):
        raise ValueError(f"{name}: needs {length} booleans; got {flag_X.dtype} of shape {flag_X.shape}")
    return flag_X


def positive(value: float, name: str) -> float:
    """``value`` if it is above 0 and finite."""
    if not (0.0 < value < np.inf):
        raise ValueError(f"{name}: needs a number above 0; got {value}")
    return float(value)


def softmax(logit_V: np.ndarray) -> np.ndarray:
    """Probabilities of ``logit_V``."""
    weight_V = np.exp(logit_V - logit_V.max())
    return weight_V / weight_V.sum()
