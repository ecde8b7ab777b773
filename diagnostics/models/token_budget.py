"""Tokens per batch of scoring. Imports nothing, so that a plan can use it."""

from __future__ import annotations

from typing import Final

#: Tokens of one batch, padding included.
TOKEN_BUDGET: Final = 1 << 14
#: On a CPU, limit of the numbers of a hidden state: SmolLM2-135M with an adapter took 10.5 GiB and 71 CPU seconds for
#: 164 responses of 95 tokens in one batch, 3.3 GiB and 63 seconds in batches of 40.
_HIDDEN_NUMBERS_ON_A_CPU = 1 << 21


def tokens_per_batch(hidden_size: int | None, *, on_cpu: bool) -> int:
    """Return the tokens of one batch that suit a model of this width and its device.

    >>> tokens_per_batch(576, on_cpu=True), tokens_per_batch(576, on_cpu=False)
    (3640, 16384)
    """
    if not on_cpu or not hidden_size:
        return TOKEN_BUDGET
    return max(1, min(TOKEN_BUDGET, _HIDDEN_NUMBERS_ON_A_CPU // hidden_size))
