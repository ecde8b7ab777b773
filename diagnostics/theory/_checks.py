"""Input validation for the closed forms. Arrays are returned as float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

#: Allowed deviation of a sum of probabilities from 1. The probabilities may come from float32 logits.
SUM_TOLERANCE = 1e-6


def vector(values: ArrayLike, name: str, *, length: int | None = None) -> np.ndarray:
    """Return a vector of ``length`` finite numbers. Raises ``ValueError`` otherwise."""
    array_X = np.asarray(values, dtype=np.float64)
    if array_X.ndim != 1 or not array_X.size or not np.isfinite(array_X).all():
        raise ValueError(f"{name}: needs a non-empty vector of finite numbers; got shape {array_X.shape}")
    if length is not None and len(array_X) != length:
        raise ValueError(f"{name}: needs {length} values, to match the other arrays; got {len(array_X)}")
    return array_X


def distribution(values: ArrayLike, name: str, *, positive: bool = False, length: int | None = None) -> np.ndarray:
    """Return a vector of probabilities that sum to 1; ``positive`` requires each to be above 0."""
    probability_X = vector(values, name, length=length)
    if probability_X.min() < 0.0 or abs(float(probability_X.sum()) - 1.0) > SUM_TOLERANCE:
        raise ValueError(f"{name}: needs probabilities that sum to 1; they sum to {float(probability_X.sum()):.6g}")
    if positive and probability_X.min() <= 0.0:
        raise ValueError(f"{name}: needs probabilities above 0; leave out impossible outcomes")
    return probability_X


def counts(values: ArrayLike, name: str, *, length: int | None = None) -> np.ndarray:
    """Return a vector of integers ≥ 0, of which at least one is positive."""
    count_X = vector(values, name, length=length)
    if count_X.min() < 0.0 or (count_X != np.round(count_X)).any() or not count_X.any():
        raise ValueError(f"{name}: needs integers ≥ 0, at least one above 0; got {count_X.tolist()}")
    return count_X


def flags(values: ArrayLike, name: str, *, length: int) -> np.ndarray:
    """Return a vector of ``length`` booleans. Raises ``ValueError`` otherwise."""
    flag_X = np.asarray(values)
    if flag_X.dtype != np.bool_ or flag_X.shape != (length,):
        raise ValueError(f"{name}: needs {length} booleans; got {flag_X.dtype} of shape {flag_X.shape}")
    return flag_X


def positive(value: float, name: str) -> float:
    """Return ``value`` as a float. Raises ``ValueError`` unless it is positive and finite."""
    if not (0.0 < value < np.inf):
        raise ValueError(f"{name}: needs a number above 0; got {value}")
    return float(value)


def softmax(logit_V: np.ndarray) -> np.ndarray:
    """Return the probabilities of ``logit_V``."""
    weight_V = np.exp(logit_V - logit_V.max())
    return weight_V / weight_V.sum()
