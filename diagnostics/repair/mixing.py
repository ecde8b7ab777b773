"""Compute base + Σ w·(checkpoint − base) elementwise, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.series.numbers import FLOAT_BYTES, floats, rounded, stored_bytes
from oversharp.diagnostics.series.weights import StoredTensor, tensor_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Number of elements of a tensor in memory at a time.
_AT_A_TIME = 1 << 20


@dataclass(kw_only=True)
class Rounding:
    """Sums over all mixed elements that give the position of the rounded weights on the line."""

    along: float = 0.0  # Σ (rounded − base)·(exact − base)
    square: float = 0.0  # Σ (exact − base)²

    def rounded_lambda(self, lambda_: float) -> float | None:
        """λ of the point on the line nearest to the rounded weights; None if all sources are equal."""
        return lambda_ * self.along / self.square if self.square else None


def mix(
    base: StoredTensor, others: Sequence[StoredTensor], weight: float, dtype: str, rounding: Rounding
) -> Iterator[bytes]:
    """Yield base + weight · Σ (other − base) as bytes of ``dtype``.

    The sum is computed in float32, or in float64 if the tensors are float64. Elements that are equal in all sources
    stay bit-identical. All tensors must have the same shape. Raises ``CheckpointError`` for NaN and infinite numbers,
    in a source or in the result.
    """
    sources = (base, *others)
    raws = [tensor_bytes(tensor, at_a_time=_AT_A_TIME * FLOAT_BYTES[tensor.dtype]) for tensor in sources]
    same_dtype = {dtype} == {tensor.dtype for tensor in sources}
    for raw, *other_raws in zip(*raws, strict=True):
        if same_dtype and all(other == raw for other in other_raws):
            yield raw
            continue
        base_N = _widen(raw, base.dtype)
        other_N = [_widen(other, tensor.dtype) for other, tensor in zip(other_raws, others, strict=True)]
        yield stored_bytes(_mix_numbers(base_N, other_N, weight, dtype, rounding, base.name), dtype)


def _mix_numbers(
    base_N: NDArray[Any], other_N: Sequence[NDArray[Any]], weight: float, dtype: str, rounding: Rounding, name: str
) -> NDArray[Any]:
    import numpy as np

    with np.errstate(invalid="ignore", over="ignore"):
        change_N = other_N[0] - base_N
        for number_N in other_N[1:]:
            change_N = change_N + (number_N - base_N)
        change_N = change_N * change_N.dtype.type(weight)
        mixed_N = rounded(base_N + change_N, dtype)
    if not np.isfinite(mixed_N).all():
        raise _not_finite(name, dtype, all(bool(np.isfinite(number_N).all()) for number_N in (base_N, *other_N)))
    rounding.along += float(np.dot(mixed_N - base_N, change_N))
    rounding.square += float(np.dot(change_N, change_N))
    return mixed_N


def scale(tensor: StoredTensor, weight: float, dtype: str) -> Iterator[bytes]:
    """Yield the bytes of weight · tensor, computed like ``mix``."""
    for raw in tensor_bytes(tensor, at_a_time=_AT_A_TIME * FLOAT_BYTES[tensor.dtype]):
        yield stored_bytes(scale_numbers(_widen(raw, tensor.dtype), weight, dtype, tensor.name), dtype)


def scale_numbers(number_N: NDArray[Any], weight: float, dtype: str, name: str) -> NDArray[Any]:
    """Return weight · number, rounded to ``dtype``.

    Raises ``CheckpointError`` for NaN and infinite numbers.
    """
    import numpy as np

    scaled_N = rounded(number_N * number_N.dtype.type(weight), dtype)
    if not np.isfinite(scaled_N).all():
        raise _not_finite(name, dtype, bool(np.isfinite(number_N).all()))
    return scaled_N


def load_tensor(tensor: StoredTensor) -> NDArray[Any]:
    """Return a small tensor in its shape, as float32 or float64."""
    return _widen(b"".join(tensor_bytes(tensor)), tensor.dtype).reshape(tensor.shape)


def _widen(raw: bytes, dtype: str) -> NDArray[Any]:
    import numpy as np

    number_N = floats(raw, dtype)
    return number_N if number_N.dtype == np.float64 else number_N.astype(np.float32, copy=False)


def _not_finite(name: str, dtype: str, sources_are_finite: bool) -> CheckpointError:
    if sources_are_finite:
        return CheckpointError(f"{name}: exceeds the range of {dtype}; leave out the largest of --lambdas")
    return CheckpointError(
        f"{name} contains NaN or infinite numbers: training diverged or a file is damaged; choose another --checkpoint"
    )
