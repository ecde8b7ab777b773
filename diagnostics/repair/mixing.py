"""Compute base + Σ w·(checkpoint − base), number by number, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.series.numbers import FLOAT_BYTES, floats, rounded, stored_bytes
from oversharp.diagnostics.series.weights import StoredTensor, tensor_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Numbers of a tensor in memory at a time.
_AT_A_TIME = 1 << 20


@dataclass(kw_only=True)
class Rounding:
    """Position of the rounded weights along the line: sums over all mixed numbers."""

    along: float = 0.0  # Σ (rounded − base)·(exact − base)
    square: float = 0.0  # Σ (exact − base)²

    def rounded_lambda(self, lambda_: float) -> float | None:
        """Return the λ of the point on the line nearest to the rounded weights.

        None if all are equal.
        """
        return lambda_ * self.along / self.square if self.square else None


def mix(
    base: StoredTensor, others: Sequence[StoredTensor], weight: float, dtype: str, rounding: Rounding
) -> Iterator[bytes]:
    """Yield the bytes of base + weight · Σ (other − base), computed in float32 and rounded to ``dtype``.

    Float64 is computed in float64. Numbers that are equal in all sources stay bit-identical. All tensors have the same
    shape. Raises ``CheckpointError`` for NaN and infinite numbers, in a source or in the result.
    """
    raws = [tensor_bytes(item, at_a_time=_AT_A_TIME * FLOAT_BYTES[item.dtype]) for item in (base, *others)]
    one_dtype = {dtype} == {entry.dtype for entry in (base, *others)}
    for raw, *other_raws in zip(*raws, strict=True):
        if one_dtype and all(member == raw for member in other_raws):
            yield raw
            continue
        base_N = _wide(raw, base.dtype)
        other_N = [_wide(element, tensor.dtype) for element, tensor in zip(other_raws, others, strict=True)]
        yield stored_bytes(_mix_numbers(base_N, other_N, weight, dtype, rounding, base.name), dtype)


def _mix_numbers(
    base_N: NDArray[Any], other_N: Sequence[NDArray[Any]], weight: float, dtype: str, rounding: Rounding, name: str
) -> NDArray[Any]:
    import numpy as np

    with np.errstate(invalid="ignore", over="ignore"):
        move_N = other_N[0] - base_N
        for one_N in other_N[1:]:
            move_N = move_N + (one_N - base_N)
        move_N = move_N * move_N.dtype.type(weight)
        made_N = rounded(base_N + move_N, dtype)
    if not np.isfinite(made_N).all():
        finite = all(bool(np.isfinite(item).all()) for item in (base_N, *other_N))
        raise _not_finite(name, dtype, finite)
    rounding.along += float(np.dot(made_N - base_N, move_N))
    rounding.square += float(np.dot(move_N, move_N))
    return made_N


def scale(tensor: StoredTensor, weight: float, dtype: str) -> Iterator[bytes]:
    """Yield the bytes of weight · tensor, computed as in ``mix``."""
    for raw in tensor_bytes(tensor, at_a_time=_AT_A_TIME * FLOAT_BYTES[tensor.dtype]):
        yield stored_bytes(scale_numbers(_wide(raw, tensor.dtype), weight, dtype, tensor.name), dtype)


def scale_numbers(number_N: NDArray[Any], weight: float, dtype: str, name: str) -> NDArray[Any]:
    """Return weight · number, rounded to ``dtype``.

    Raises ``CheckpointError`` for NaN and infinite numbers.
    """
    import numpy as np

    made_N = rounded(number_N * number_N.dtype.type(weight), dtype)
    if not np.isfinite(made_N).all():
        raise _not_finite(name, dtype, bool(np.isfinite(number_N).all()))
    return made_N


def whole(tensor: StoredTensor) -> NDArray[Any]:
    """Return a small tensor in its shape, as float32 or float64."""
    return _wide(b"".join(tensor_bytes(tensor)), tensor.dtype).reshape(tensor.shape)


def _wide(raw: bytes, dtype: str) -> NDArray[Any]:
    import numpy as np

    number_N = floats(raw, dtype)
    return number_N if number_N.dtype == np.float64 else number_N.astype(np.float32, copy=False)


def _not_finite(name: str, dtype: str, sources_are_finite: bool) -> CheckpointError:
    if sources_are_finite:
        return CheckpointError(f"{name}: exceeds the range of {dtype}; drop the largest of --lambdas")
    return CheckpointError(
        f"{name} contains NaN or infinite numbers: training diverged or a file is damaged; name another --checkpoint"
    )
