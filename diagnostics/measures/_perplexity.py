"""Perplexity of single responses, and where it stops being a number worth a mean."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

#: No perplexity is below that of a certain response.
BOUNDS = (1.0, math.inf)

#: A uniform guess over a million tokens costs 14 nats; far beyond it the exponential swamps or overflows the mean.
MOST_NATS_PER_TOKEN = 100.0


def perplexity_of(
    logp_R: Float[np.ndarray, " response"], n_tokens_R: Int[np.ndarray, " response"]
) -> tuple[Float[np.ndarray, " response"], str | None]:
    """exp(−log π(y) / |y|) of each response, and why their mean means nothing, if so ([C] Eq 6, before the mean).

    ``logp_R`` in nats, summed over ``n_tokens_R`` tokens.

    >>> perplexity_of(np.log([0.25, 0.5]), np.array([2, 1]))
    (array([2., 2.]), None)
    >>> perplexity_of(np.array([-500.0]), np.array([2]))[1]
    'a response has 250 nats per token here, more than any guess costs; check the weights'
    """
    nats_per_token_R = -logp_R / n_tokens_R
    most = float(nats_per_token_R.max(initial=0.0))
    if most > MOST_NATS_PER_TOKEN:
        why = f"a response has {most:.0f} nats per token here, more than any guess costs; check the weights"
        return np.exp(np.minimum(nats_per_token_R, MOST_NATS_PER_TOKEN)), why
    return np.exp(nats_per_token_R), None
