"""Problem sets: built-in generators, reasoning-gym, files, and benchmarks.

Other packages add a task through the entry-point group ``oversharp.tasks``. The entry point is a callable ``(argument:
str, *, limit: int | None, seed: int) -> Iterable[Problem]``. ``argument`` is the text after the colon in ``--task
NAME:ARGUMENT``; it may be empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from oversharp.diagnostics.records.errors import ProblemError, VerifierError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.records.plugins import find_callables, load_callable
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks.worlds import WORLDS
from oversharp.diagnostics.verifiers import in_thoughts, named_verifier
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
from oversharp.diagnostics.verifiers.reading.golds import GoldList, all_of

ENTRY_POINT_GROUP = "oversharp.tasks"
#: Number of generated problems if no limit is given.
DEFAULT_GENERATED = 100

_BUILT_IN = ("benchmark", "reasoning_gym", "word_problems", *WORLDS)


def load_problems(
    problems_file: Path | None,
    task: str | None,
    *,
    limit: int | None = None,
    seed: int = 0,
    repeated: list[str] | None = None,
    verifier: str | None = None,
    gold: GoldList = "any",
    answer_in_thoughts: bool = False,
    limits: GraderLimits | None = None,
) -> tuple[Problem, ...]:
    """Return the gradable problems of a JSONL or Parquet file, or of a task by name; at least one.

    Args:
        problems_file: exactly one of ``problems_file`` and ``task`` (see ``task_names``) must be given. limit: keep the
        first problems of a file or benchmark; number of problems of a generator (default 100). seed: seed of
        generators, and of benchmarks whose limit samples problems at random. repeated: list to which the locations of
        duplicates in a file are added; these are skipped. With None a duplicate is an error. verifier: replaces the
        problems' own verifier. ``limits`` apply if it is the user's code. gold: whether a response must state any or
        all members of a gold that is a list. answer_in_thoughts: accept a boxed answer in the model's thinking if no
        answer follows it.

    Raises:
        ProblemError: a problem or task that cannot be loaded or graded.
        ConfigError: a broken or clashing plugin.

    >>> load_problems(None, "contdown")
    Traceback (most recent call last):
    oversharp.diagnostics.records.errors.ProblemError: task 'contdown' is unknown; did you mean: countdown
    """
    if (problems_file is None) == (task is None):
        raise ProblemError("give either a problem file (--problems FILE) or a task (--task NAME), not both")
    if limit is not None and limit < 1:
        raise ProblemError(f"the limit on problems is {limit}; give at least 1")
    named = None if verifier is None else named_verifier(verifier, limits)
    from oversharp.diagnostics.tasks.files import load_problem_file, replace_verifier

    if problems_file is not None:
        problems = load_problem_file(problems_file, limit=limit, repeated=repeated, verifier=named)
    else:
        assert task is not None
        problems = tuple(_load_task(task, limit=limit, seed=seed))
        if named is not None:
            problems = tuple(_checked((replace_verifier(problem, named) for problem in problems), task))
    if not problems:
        raise ProblemError(f"task {task!r} has no problems")
    if gold == "all":
        problems = tuple(replace(problem, gold=all_of(problem.gold)) for problem in problems)
    if answer_in_thoughts:
        problems = tuple(replace(problem, verifier=in_thoughts(problem.verifier)) for problem in problems)
    return problems


def task_names() -> tuple[str, ...]:
    """Return the names that ``--task`` accepts. ``NAME`` stands for any generator of reasoning-gym.

    >>> task_names()[:2]
    ('benchmark:aime24', 'benchmark:aime25')
    """
    from oversharp.diagnostics.tasks.benchmarks import BENCHMARKS

    built_in = (
        *WORLDS,
        "reasoning_gym:NAME",
        "word_problems",
        "word_problems:train",
        *(f"benchmark:{name}" for name in BENCHMARKS),
    )
    return tuple(sorted({*built_in, *find_callables(ENTRY_POINT_GROUP, _BUILT_IN)}))


def suggested_max_tokens(task: str | None) -> int | None:
    """Return the length of the task's longest response in tokens, end token included; None if unknown.

    >>> suggested_max_tokens("countdown"), suggested_max_tokens("benchmark:gsm8k")
    (6, None)
    """
    from oversharp.diagnostics.tasks import word_problems

    lengths = {name: world.RESPONSE_TOKENS for name, world in WORLDS.items()}
    lengths[word_problems.TASK] = word_problems.RESPONSE_TOKENS
    return lengths.get(task.partition(":")[0]) if task is not None else None


def _load_task(task: str, *, limit: int | None, seed: int) -> Iterable[Problem]:
    name, _, argument = task.partition(":")
    outside = find_callables(ENTRY_POINT_GROUP, _BUILT_IN)
    if name in WORLDS and not argument:
        # the seed is not used: with another seed, the audit would contain problems of the training split
        return WORLDS[name].problems(split="held_out", limit=DEFAULT_GENERATED if limit is None else limit)
    if name == "reasoning_gym":
        from oversharp.diagnostics.tasks.reasoning_gym import generated_problems

        return generated_problems(argument, size=DEFAULT_GENERATED if limit is None else limit, seed=seed)
    if name == "word_problems":
        from oversharp.diagnostics.tasks.word_problems import problems as word_problems

        return word_problems(argument, limit=DEFAULT_GENERATED if limit is None else limit, seed=seed)
    if name == "benchmark":
        from oversharp.diagnostics.tasks.benchmarks import benchmark_problems

        return benchmark_problems(argument, limit=limit, seed=seed)
    if name not in outside:
        raise ProblemError(f"task {task!r} is unknown; {nearest_names(task, task_names())}")
    return _checked(load_callable(outside[name])(argument, limit=limit, seed=seed), task)


def _checked(problems: Iterable[Problem], task: str) -> Iterable[Problem]:
    from oversharp.diagnostics.verifiers import Verifiers

    with Verifiers() as verifiers:
        for number, problem in enumerate(problems, start=1):
            try:
                verifiers.check_gold(problem)
            except (ProblemError, VerifierError) as error:
                raise ProblemError(f"task {task!r}, problem {number}: {error}") from error
            yield problem
