"""Base of the built-in task Countdown: vocabulary and training examples."""

from __future__ import annotations

import random
from functools import cache
from math import prod

from oversharp.diagnostics.tasks import countdown
from oversharp.diagnostics.tasks.countdown import Query
from oversharp.trainers.worlds.contract import World

#: Weights of the modes in the training examples, which become the base's preferences. A mode's weight is the product of
#: the weights of its operators, times LARGEST_FIRST_WEIGHT if it starts with the largest number.
OPERATOR_WEIGHT = {"+": 1.0, "-": 0.5, "*": 0.35}
LARGEST_FIRST_WEIGHT = 3.0


@cache
def mode_weights(query: Query) -> tuple[float, ...]:
    """Return the weight of each mode of the query in the training examples, not normalised.

    >>> query = Query((1, 2, 12), 15)
    >>> dict(zip(countdown.modes(query), mode_weights(query), strict=True))["12 + 1 + 2"]
    3.0
    """
    weights = []
    for mode in countdown.modes(query):
        words = mode.split()
        style = LARGEST_FIRST_WEIGHT if int(words[0]) == max(query.numbers) else 1.0
        weights.append(style * prod(OPERATOR_WEIGHT[operator] for operator in words[1::2]))
    return tuple(weights)


def draw_response(query: Query, rng: random.Random, wrong_share: float) -> str:
    """Sample a training response: a wrong expression with probability ``wrong_share``, else a mode by its weight."""
    if rng.random() < wrong_share:
        return rng.choice(rng.choice(countdown.wrong_expressions(query)))
    return rng.choices(countdown.modes(query), mode_weights(query))[0]


def _draw_example(rng: random.Random, wrong_share: float) -> tuple[str, str]:
    queries, _ = countdown.split_queries()
    query = queries[rng.randrange(len(queries))]
    return query.prompt, draw_response(query, rng, wrong_share)


WORLD = World(
    name=countdown.TASK,
    words=("=", ":", *countdown.OPERATORS, *(str(number) for number in range(countdown.MAX_TARGET + 1))),
    prompt_tokens=countdown.NUMBERS_PER_QUERY + 3,
    response_tokens=countdown.RESPONSE_TOKENS,
    draw_example=_draw_example,
)
