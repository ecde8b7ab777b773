"""Problems from any generator of reasoning-gym. The generator's own scorer grades them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from itertools import islice
from typing import Any

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.verifiers.packing import pack


def generated_problems(generator: str, *, size: int, seed: int) -> tuple[Problem, ...]:
    """Return ``size`` distinct problems of ``generator`` with its default settings.

    ``meta`` contains the whole entry, so grading needs only the store. The gold is empty if a generator accepts many
    answers and states none. Duplicates are replaced by more entries. Raises ``ProblemError`` for an unknown generator,
    or one with fewer than ``size`` distinct problems.
    """
    generators = _generators()
    if generator not in generators:
        task, known = f"reasoning_gym:{generator}", (f"reasoning_gym:{name}" for name in generators)
        raise ProblemError(f"task {task!r} is unknown; {nearest_names(task, known)}")
    with redirect_stdout(StringIO()):  # some generators print dots, which would corrupt --json output
        problems = _different_problems(generator, size=size, seed=seed)
    if len(problems) < size:
        raise ProblemError(
            f"task 'reasoning_gym:{generator}' generated only {plural(len(problems), 'distinct problem')} of {size}; "
            "lower the limit"
        )
    return problems


def _different_problems(generator: str, *, size: int, seed: int) -> tuple[Problem, ...]:
    by_prompt: dict[str, Problem] = {}
    # more than ``size``, because entries repeat (a fifth in coin_flip); bounded for generators with few problems
    entries = _entries(generator, size=4 * size + 10, seed=seed)
    for problem in (_problem(generator, entry) for entry in entries):
        by_prompt.setdefault(problem.prompt, problem)
        if len(by_prompt) == size:
            break
    return tuple(by_prompt.values())


def _generators() -> frozenset[str]:
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ProblemError(f"reasoning-gym cannot be imported ({error}); run: pip install reasoning-gym") from error
    return frozenset(DATASETS)


def _entries(generator: str, *, size: int, seed: int) -> Iterator[dict[str, Any]]:
    import reasoning_gym

    try:
        dataset: Iterable[dict[str, Any]] = reasoning_gym.create_dataset(generator, size=size, seed=seed)
        yield from islice(dataset, size)
    except (AssertionError, ValueError) as error:
        raise ProblemError(
            f"task 'reasoning_gym:{generator}' cannot be generated with its default settings ({error})"
        ) from error


def _problem(generator: str, entry: dict[str, Any]) -> Problem:
    try:
        packed = pack(entry)
    except TypeError as error:
        raise ProblemError(
            f"task 'reasoning_gym:{generator}': its entries cannot be stored as JSON ({error})"
        ) from error
    answer = entry["answer"]
    return Problem(
        task=f"reasoning_gym:{generator}",
        prompt=entry["question"],
        gold="" if answer is None else str(answer),
        verifier="reasoning_gym",
        meta={"generator": generator, "entry": packed},
    )
