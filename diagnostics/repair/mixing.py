"""The arithmetic: base + Σ w·(checkpoint − base), number by number, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.series.numbers import FLOAT_BYTES, floats, rounded, stored_bytes
from oversharp.diagnostics.series.weights import StoredTensor, tensor_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Numbers of a tensor that are in memory at a time.
_AT_A_TIME = 1 << 20


@dataclass(kw_only=True)
class Rounding:
    """How far along the line the rounded weights lie: sums over all numbers that were mixed."""

    along: float = 0.0  # Σ (rounded − base)·(wanted − base)
    square: float = 0.0  # Σ (wanted − base)²

    def rounded_lambda(self, lambda_: float) -> float | None:
        """The λ of the point on the line that is nearest to the rounded weights; None if none was to move."""
        return lambda_ * self.along / self.square if self.square else None


def mixed(
    base: StoredTensor, others: Sequence[StoredTensor], weight: float, dtype: str, rounding: Rounding
) -> Iterator[bytes]:
    """The bytes of base + weight · Σ (other − base), computed in float32 and rounded to ``dtype``.

    Float64 is computed in itself. What is the same in all sources stays as it is, to the bit. All tensors have one
    shape. Raises ``CheckpointError`` for NaN and infinite numbers, in a source or by the mixing.
    """
    raws = [tensor_bytes(one, at_a_time=_AT_A_TIME * FLOAT_BYTES[one.dtype]) for one in (base, *others)]
    one_dtype = {dtype} == {one.dtype for one in (base, *others)}
    for raw, *other_raws in zip(*raws, strict=True):
        if one_dtype and all(one == raw for one in other_raws):
            yield raw
            continue
        base_N = _wide(raw, base.dtype)
        other_N = [_wide(one, tensor.dtype) for one, tensor in zip(other_raws, others, strict=True)]
        yield stored_bytes(_mixed_numbers(base_N, other_N, weight, dtype, rounding, base.name), dtype)


def _mixed_numbers(
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
        finite = all(bool(np.isfinite(one).all()) for one in (base_N, *other_N))
        raise _not_finite(name, dtype, finite)
    rounding.along += float(np.dot(made_N - base_N, move_N))
    rounding.square += float(np.dot(move_N, move_N))
    return made_N


def scaled(tensor: StoredTensor, weight: float, dtype: str) -> Iterator[bytes]:
    """The bytes of weight · tensor, as ``mixed`` computes them."""
    for raw in tensor_bytes(tensor, at_a_time=_AT_A_TIME * FLOAT_BYTES[tensor.dtype]):
        yield stored_bytes(scaled_numbers(_wide(raw, tensor.dtype), weight, dtype, tensor.name), dtype)


def scaled_numbers(number_N: NDArray[Any], weight: float, dtype: str, name: str) -> NDArray[Any]:
    """weight · number, rounded to ``dtype``. Raises ``CheckpointError`` for NaN and infinite numbers."""
    import numpy as np

    made_N = rounded(number_N * number_N.dtype.type(weight), dtype)
    if not np.isfinite(made_N).all():
        raise _not_finite(name, dtype, bool(np.isfinite(number_N).all()))
    return made_N


def whole(tensor: StoredTensor) -> NDArray[Any]:
    """A small tensor in its shape, as float32 or float64."""
    return _wide(b"".join(tensor_bytes(tensor)), tensor.dtype).reshape(tensor.shape)


def _wide(raw: bytes, dtype: str) -> NDArray[Any]:
    import numpy as np

    number_N = floats(raw, dtype)
    return number_N if number_N.dtype == np.float64 else number_N.astype(np.float32, copy=False)


def _not_finite(name: str, dtype: str, sources_are_finite: bool) -> CheckpointError:
    if sources_are_finite:
        return CheckpointError(f"{name}: leaves the range of {dtype}; leave the largest of --lambdas out")
    return CheckpointError(
        f"{name} holds NaN or infinite numbers; the training diverged or a file is damaged: name another --checkpoint"
    )
