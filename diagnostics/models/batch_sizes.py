"""Default batch sizes for scoring and sampling.

Imports no torch, so that planning an audit can use them.
"""

from __future__ import annotations

from typing import Final

#: Largest number of tokens in a batch for scoring, including padding.
TOKEN_BUDGET: Final = 1 << 14
#: Largest size of a batch's hidden state on a CPU, in numbers (tokens × hidden size). With SmolLM2-135M and an adapter,
#: scoring 164 responses of 95 tokens took 10.5 GiB and 71 CPU seconds in one batch, 3.3 GiB and 63 CPU seconds in
#: batches of 40.
_HIDDEN_NUMBERS_ON_A_CPU = 1 << 21

#: Largest default number of responses that are sampled concurrently.
MAX_ROWS: Final = 256
#: Concurrent responses on a CPU: the smallest default, and the number per thread. With SmolLM2-135M on one core, 256
#: responses were no faster than 64 (248 against 258 tokens per second). Audits used 3.7 GiB with 256, 2.7 GiB with 64.
_CPU_ROWS, _CPU_ROWS_PER_THREAD = 64, 8
#: Models with fewer parameters use ``MAX_ROWS`` on a CPU: a decoding step takes the same time for any number of rows,
#: and little memory.
_SMALL_PARAMETERS = 50_000_000


def tokens_per_batch(hidden_size: int | None, *, on_cpu: bool) -> int:
    """Return the number of tokens in a batch for scoring, for a model of this hidden size.

    >>> tokens_per_batch(576, on_cpu=True), tokens_per_batch(576, on_cpu=False)
    (3640, 16384)
    """
    if not on_cpu or not hidden_size:
        return TOKEN_BUDGET
    return max(1, min(TOKEN_BUDGET, _HIDDEN_NUMBERS_ON_A_CPU // hidden_size))


def default_rows(device_type: str, n_parameters: int, n_threads: int) -> int:
    """Return the default number of responses that are sampled concurrently.

    >>> default_rows("cuda", 135_000_000, 2), default_rows("cpu", 1_000_000, 2)
    (256, 256)
    >>> [default_rows("cpu", 135_000_000, n_threads) for n_threads in (1, 8, 16, 96)]
    [64, 64, 128, 256]
    """
    if device_type != "cpu" or n_parameters < _SMALL_PARAMETERS:
        return MAX_ROWS
    return min(MAX_ROWS, max(_CPU_ROWS, _CPU_ROWS_PER_THREAD * n_threads))
