"""Read and round the numbers in weight files without torch.

Numpy has no bfloat16, so it is emulated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.series.weights import StoredTensor, tensor_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Bytes per number for each float dtype of safetensors. All other dtypes are integers or quantised.
FLOAT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_AT_A_TIME = 1 << 21


def is_whole(tensor: StoredTensor) -> bool:
    """Return whether a tensor has a float dtype and exactly the bytes that its shape needs."""
    return tensor.end - tensor.start == math.prod(tensor.shape) * FLOAT_BYTES.get(tensor.dtype, -1)


def stored_floats(tensor: StoredTensor) -> Iterator[NDArray[Any]]:
    """Yield the numbers of ``tensor`` in blocks of the same length for every dtype; bfloat16 as float32."""
    width = FLOAT_BYTES[tensor.dtype]
    for raw in tensor_bytes(tensor, at_a_time=_AT_A_TIME * width):
        yield floats(raw, tensor.dtype)


def floats(raw: bytes, dtype: str) -> NDArray[Any]:
    """Return the numbers in ``raw``, read-only; bfloat16 as float32.

    >>> floats(bytes.fromhex("803f0040"), "BF16")
    array([1., 2.], dtype=float32)
    """
    import numpy as np

    if dtype == "BF16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(raw, f"<f{FLOAT_BYTES[dtype]}")


def rounded(number_N: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Round to ``dtype``: ties to even, overflow to infinity.

    A bfloat16 result is returned as float32.

    >>> rounded(floats(bytes.fromhex("0180803f"), "F32"), "BF16")  # 1 plus slightly more than half a step
    array([1.0078125], dtype=float32)
    """
    import numpy as np

    with np.errstate(over="ignore"):
        if dtype != "BF16":
            return number_N.astype(f"<f{FLOAT_BYTES[dtype]}")
        bits_N = number_N.astype("<f4").view("<u4")
        return ((bits_N + 0x7FFF + ((bits_N >> 16) & 1)) & 0xFFFF0000).view("<f4")


def stored_bytes(number_N: NDArray[Any], dtype: str) -> bytes:
    """Return the bytes that store ``rounded`` numbers in a file.

    >>> stored_bytes(rounded(floats(bytes.fromhex("0180803f"), "F32"), "BF16"), "BF16").hex()
    '813f'
    """
    if dtype != "BF16":
        return number_N.tobytes()
    return (number_N.view("<u4") >> 16).astype("<u2").tobytes()
