"""How many responses an engine works on at a time."""

from __future__ import annotations

from typing import Final

#: Where the user names no number, at most.
MOST_ROWS: Final = 256
#: The same on a CPU: at least, and per thread. Of SmolLM2-135M 256 drew no faster on one core than 64 (248 tokens a
#: second against 258), and audits of its runs held 3.7 GiB with 256 and 2.7 with 64.
_CPU_ROWS, _CPU_ROWS_PER_THREAD = 64, 8
#: Steps of smaller models cost what they cost for any number of rows, which take little memory.
_SMALL_PARAMETERS = 50_000_000


def default_rows(device_type: str, n_parameters: int, n_threads: int) -> int:
    """Responses at a time as a balance of speed and memory, where memory on a GPU has its own bounds.

    >>> default_rows("cuda", 135_000_000, 2), default_rows("cpu", 1_000_000, 2)
    (256, 256)
    >>> [default_rows("cpu", 135_000_000, n_threads) for n_threads in (1, 8, 16, 96)]
    [64, 64, 128, 256]
    """
    if device_type != "cpu" or n_parameters < _SMALL_PARAMETERS:
        return MOST_ROWS
    return min(MOST_ROWS, max(_CPU_ROWS, _CPU_ROWS_PER_THREAD * n_threads))
