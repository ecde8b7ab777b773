"""Default batch sizes for scoring and sampling. Imports nothing, so that a plan can use them."""

from __future__ import annotations

from typing import Final

#: Tokens of one scored batch, padding included.
TOKEN_BUDGET: Final = 1 << 14
#: Limit of the numbers of a hidden state on a CPU: SmolLM2-135M with an adapter took 10.5 GiB and 71 CPU seconds for
#: 164 responses of 95 tokens in one batch, 3.3 GiB and 63 seconds in batches of 40.
_HIDDEN_NUMBERS_ON_A_CPU = 1 << 21

#: Largest default number of concurrent responses.
MAX_ROWS: Final = 256
#: Smallest default on a CPU, and rows per thread. With SmolLM2-135M on one core, 256 rows were no faster than 64 (248
#: tokens a second, against 258), and audits used 3.7 GiB with 256 and 2.7 with 64.
_CPU_ROWS, _CPU_ROWS_PER_THREAD = 64, 8
#: A step of smaller models takes the same time for any number of rows, and little memory.
_SMALL_PARAMETERS = 50_000_000


def tokens_per_batch(hidden_size: int | None, *, on_cpu: bool) -> int:
    """Return the tokens of one batch that suit a model of this width and its device.

    >>> tokens_per_batch(576, on_cpu=True), tokens_per_batch(576, on_cpu=False)
    (3640, 16384)
    """
    if not on_cpu or not hidden_size:
        return TOKEN_BUDGET
    return max(1, min(TOKEN_BUDGET, _HIDDEN_NUMBERS_ON_A_CPU // hidden_size))


def default_rows(device_type: str, n_parameters: int, n_threads: int) -> int:
    """Return the number of concurrent responses that balances speed and memory.

    >>> default_rows("cuda", 135_000_000, 2), default_rows("cpu", 1_000_000, 2)
    (256, 256)
    >>> [default_rows("cpu", 135_000_000, n_threads) for n_threads in (1, 8, 16, 96)]
    [64, 64, 128, 256]
    """
    if device_type != "cpu" or n_parameters < _SMALL_PARAMETERS:
        return MAX_ROWS
    return min(MAX_ROWS, max(_CPU_ROWS, _CPU_ROWS_PER_THREAD * n_threads))
