"""Base of the built-in task Programs: vocabulary and training examples."""

from __future__ import annotations

import random
from functools import cache
from math import prod

from oversharp.diagnostics.tasks import programs
from oversharp.diagnostics.tasks.programs import Results
from oversharp.trainers.worlds.contract import World

#: Weights of the modes in the training examples, which become the base's preferences. A mode's weight is the product of
#: the weights of its operators, times PARAMETER_FIRST_WEIGHT if it starts with a parameter.
OPERATOR_WEIGHT = {"+": 1.0, "-": 0.5, "*": 0.35}
PARAMETER_FIRST_WEIGHT = 3.0


@cache
def mode_weights(results: Results) -> tuple[float, ...]:
    """Return the weight of each mode of the function in the training examples, not normalised.

    >>> results = tuple(a + b for a, b in programs.CASES)
    >>> dict(zip(programs.modes(results), mode_weights(results), strict=True))["1 * a + b"]
    0.35
    """
    weights = []
    for mode in programs.modes(results):
        words = mode.split()
        style = PARAMETER_FIRST_WEIGHT if words[0] in programs.PARAMETERS else 1.0
        weights.append(style * prod(OPERATOR_WEIGHT[operator] for operator in words[1::2]))
    return tuple(weights)


def draw_response(results: Results, rng: random.Random, wrong_share: float) -> str:
    """Sample a training response: a program of another function with probability ``wrong_share``, else a mode."""
    if rng.random() < wrong_share:
        functions, _ = programs.split_functions()
        other = rng.choice([function for function in rng.sample(functions, 2) if function != results])
        return rng.choice(programs.modes(other))
    return rng.choices(programs.modes(results), mode_weights(results))[0]


def _draw_example(rng: random.Random, wrong_share: float) -> tuple[str, str]:
    functions, _ = programs.split_functions()
    results = functions[rng.randrange(len(functions))]
    return programs.prompt(results), draw_response(results, rng, wrong_share)


WORLD = World(
    name=programs.TASK,
    words=(
        *programs.CALLS,
        programs.ASKED,
        *programs.PARAMETERS,
        *programs.OPERATORS,
        *(str(number) for number in range(programs.MAX_RESULT + 1)),
    ),
    prompt_tokens=2 * len(programs.SHOWN) + 1,
    response_tokens=programs.RESPONSE_TOKENS,
    draw_example=_draw_example,
)
