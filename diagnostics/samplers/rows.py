"""Default number of concurrent responses of an engine."""

from __future__ import annotations

from typing import Final

#: Maximum where the user gives no number.
MOST_ROWS: Final = 256
#: On a CPU: minimum, and rows per thread. With SmolLM2-135M, 256 rows were no faster on one core than 64 (248 tokens a
#: second, against 258), and audits used 3.7 GiB with 256 and 2.7 with 64.
_CPU_ROWS, _CPU_ROWS_PER_THREAD = 64, 8
#: A step of smaller models takes the same time for any number of rows, which take little memory.
_SMALL_PARAMETERS = 50_000_000


def default_rows(device_type: str, n_parameters: int, n_threads: int) -> int:
    """Return the number of concurrent responses that balances speed and memory.

    GPUs have separate memory limits.

    >>> default_rows("cuda", 135_000_000, 2), default_rows("cpu", 1_000_000, 2)
    (256, 256)
    >>> [default_rows("cpu", 135_000_000, n_threads) for n_threads in (1, 8, 16, 96)]
    [64, 64, 128, 256]
    """
    if device_type != "cpu" or n_parameters < _SMALL_PARAMETERS:
        return MOST_ROWS
    return min(MOST_ROWS, max(_CPU_ROWS, _CPU_ROWS_PER_THREAD * n_threads))
