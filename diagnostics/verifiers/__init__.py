"""Verifiers, which turn the text of a response into an answer, a reward and a state.

Other packages add a verifier through the entry-point group ``oversharp.verifiers``: a callable without arguments that
returns an object with the methods of ``oversharp.diagnostics.verifiers.contract.Verifier`` (and ``close()`` if it has
worker processes). A function or a judge in a user's file can also be a verifier; see ``named_verifier``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType, TracebackType

from oversharp.diagnostics.records.errors import ConfigError, ProblemError, VerifierError
from oversharp.diagnostics.records.plugins import find_callables, load_callable
from oversharp.diagnostics.records.types import Grade, Problem
from oversharp.diagnostics.verifiers.contract import Verifier
from oversharp.diagnostics.verifiers.names import is_judge
from oversharp.diagnostics.verifiers.own_file import (
    EnvironmentVerifier,
    OwnFileVerifier,
    is_environment,
    is_own,
    named_by_user,
    pinned,
)
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
from oversharp.diagnostics.verifiers.reading.golds import accepted_golds
from oversharp.diagnostics.verifiers.thoughts import SUFFIX, ThoughtsVerifier

ENTRY_POINT_GROUP = "oversharp.verifiers"

# name -> module and class, imported on first use so that --help never loads sympy
_BUILT_IN = {
    "choice": ("oversharp.diagnostics.verifiers.choice", "ChoiceVerifier"),
    "code": ("oversharp.diagnostics.verifiers.code.verifier", "CodeVerifier"),
    "exact": ("oversharp.diagnostics.verifiers.exact", "ExactVerifier"),
    "expression": ("oversharp.diagnostics.verifiers.expression", "ExpressionVerifier"),
    "math": ("oversharp.diagnostics.verifiers.math", "MathVerifier"),
    "math_strict": ("oversharp.diagnostics.verifiers.math", "StrictMathVerifier"),
    "modes": ("oversharp.diagnostics.verifiers.modes", "ModesVerifier"),
    "program": ("oversharp.diagnostics.verifiers.programs.verifier", "ProgramVerifier"),
    "reasoning_gym": ("oversharp.diagnostics.verifiers.reasoning_gym", "ReasoningGymVerifier"),
}
#: Verifiers that extract an answer from text. Their gold may list several answers, and they have a variant that accepts
#: answers in the model's thinking.
_READERS = ("choice", "exact", "math", "math_strict")
_RAISED = {"choice": 5, "exact": 5, "math": 6, "math_strict": 6}
#: Version of each verifier's rules. If you change what a verifier accepts or returns as the answer, raise its number.
#: Grades by older rules are then recomputed, and never counted together with new grades.
RULES: Mapping[str, int] = MappingProxyType(
    {name: _RAISED.get(name, 1) for name in _BUILT_IN} | {name + SUFFIX: _RAISED[name] for name in _READERS}
)
#: Upper bound (95 %) on the share of real models' wrong answers that a verifier accepts if the gold is a number: 0 of
#: 3,275 on GSM8K (``benchmarks/results/grading.md``). For other golds too few wrong answers were graded: 63.
_FALSE_ACCEPTS_OF_NUMBERS: Mapping[str, float] = MappingProxyType({"math": 0.0011, "math_strict": 0.0011})
_NUMBER = re.compile(r"[-−+]?\$?\d[\d,]*(\.\d+)?%?")
#: Verifiers whose grades distinguish correct answers of a problem as modes.
SHOW_MODES = frozenset({"expression", "modes", "program"})
_WITH_WORKERS = frozenset({"code", "math", "math_strict", "reasoning_gym"})


def verifier_names() -> tuple[str, ...]:
    """Return all names that ``get_verifier`` accepts, sorted.

    >>> verifier_names()[:3]
    ('choice', 'choice_thoughts', 'code')
    """
    return tuple(sorted({*RULES, *find_callables(ENTRY_POINT_GROUP, _BUILT_IN)}))


def get_verifier(name: str, *, timeout_s: float = 5.0, workers: int | None = None) -> Verifier:
    """Create a verifier.

    If it has a ``close()``, call it at the end; ``Verifiers`` does this automatically. ``timeout_s`` (wall seconds per
    response) and ``workers`` apply to verifiers with worker processes. Raises ``VerifierError`` for an unknown name.
    Raises ``ConfigError`` for a broken or clashing plugin, or for a function in a file that the user did not pass to
    this process.

    >>> get_verifier("modes").name
    'modes'
    """
    outside = find_callables(ENTRY_POINT_GROUP, _BUILT_IN)
    if name in RULES and name not in _BUILT_IN:
        return ThoughtsVerifier(get_verifier(name.removesuffix(SUFFIX), timeout_s=timeout_s, workers=workers))
    if name in _BUILT_IN:
        module, class_name = _BUILT_IN[name]
        build = getattr(import_module(module), class_name)
        verifier: Verifier = build(timeout_s=timeout_s, workers=workers) if name in _WITH_WORKERS else build()
        return verifier
    if is_environment(name):
        return EnvironmentVerifier(name)
    if is_own(name):
        return OwnFileVerifier(name)
    if is_judge(name):
        from oversharp.diagnostics.verifiers.judges.judge import JudgeVerifier  # loads asyncio

        return JudgeVerifier(name)
    if name not in outside:
        near = get_close_matches(name, verifier_names(), n=3) or verifier_names()
        raise VerifierError(f"verifier {name!r} is unknown; use one of: {', '.join(near)}")
    built: Verifier = load_callable(outside[name])()
    return built


def is_from_file(given: str) -> bool:
    """Return whether ``given`` is a function or a judge in a user's file, which may wait for a server.

    >>> is_from_file("reward.py:grade"), is_from_file("judge:rubric.toml"), is_from_file("math")
    (True, True, False)
    """
    return is_own(given) or is_judge(given)


def pinned_verifier(given: str) -> str:
    """Return ``given`` with the hash of its file's content, if it has a file. Raises ``ConfigError``."""
    if is_judge(given):
        from oversharp.diagnostics.verifiers.judges.rubric import pin_judge  # loads asyncio

        return pin_judge(given)
    return pinned(given) if is_own(given) else given


def named_verifier(given: str, limits: GraderLimits | None = None) -> str:
    """Return the verifier's name for the value of a flag. A function or a judge in a file is loaded first.

    Only call this with a value that the user typed, because it runs the file, in a process bounded by ``limits``, or
    sends the API key to the judge's server. With None, the limits are those of an earlier call for this file, else the
    default. Raises ``ConfigError`` if the file, function or judge cannot be used.
    """
    if is_judge(given):
        from oversharp.diagnostics.verifiers.judges.judge import judge_named_by_user  # loads asyncio

        return judge_named_by_user(given)
    return named_by_user(given, limits) if is_own(given) and not is_environment(given) else given


def in_thoughts(verifier: str) -> str:
    """Return the name of the variant that accepts a box in the model's thinking if no answer follows.

    Raises ``ConfigError`` for a verifier that has no such variant.

    >>> in_thoughts("math"), in_thoughts("math_thoughts")
    ('math_thoughts', 'math_thoughts')
    """
    if verifier in RULES and verifier.endswith(SUFFIX):
        return verifier
    if verifier not in _READERS:
        raise ConfigError(
            f"--answer-in-thoughts: verifier {verifier!r} does not support it; use one of {', '.join(_READERS)}"
        )
    return verifier + SUFFIX


def guess_shares(verifier: str, problems: Iterable[Problem]) -> list[float | None]:
    r"""Return each problem's share of wrong responses that ``verifier`` accepts by luck; None if unknown.

    An unknown verifier, such as another tool's, does not raise an error but gives None.

    >>> options = Problem(task="t", prompt="Warm?\nA. blue\nB. red", gold="B", verifier="choice")
    >>> guess_shares("choice", [options]), guess_shares("math", [options]), guess_shares("recorded:verl", [options])
    ([0.5], [None], [None])
    """
    guess_share = None
    if verifier in verifier_names():
        with Verifiers() as verifiers:  # creating a verifier starts no worker processes
            guess_share = getattr(verifiers.named(verifier), "guess_share", None)
    return [None if guess_share is None else guess_share(problem) for problem in problems]


def measured_false_accepts(verifier: str, problems: Iterable[Problem]) -> float | None:
    r"""Return the measured upper bound on the share of wrong responses that ``verifier`` accepts.

    None if it was not measured for this verifier, or if the gold of a problem is not a plain number.

    >>> whole, fraction = (Problem(task="t", prompt="", gold=gold, verifier="math") for gold in ("1,200", "x + 1"))
    >>> print(measured_false_accepts("math", [whole]), measured_false_accepts("math", [whole, fraction]))
    0.0011 None
    """
    rate = _FALSE_ACCEPTS_OF_NUMBERS.get(verifier)
    if rate is None or not all(_NUMBER.fullmatch(problem.gold.strip()) for problem in problems):
        return None
    return rate


class Verifiers:
    """Grade problems with any mix of verifiers.

    Each verifier starts on first use, and all are closed at the end.

    >>> problem = Problem(task="t", prompt="2 + 3", gold="5", verifier="exact")
    >>> with Verifiers() as verifiers:
    ...     verifiers.grade([(problem, "Answer: 5")])[0].correct
    True
    """

    def __init__(self, *, timeout_s: float = 5.0, workers: int | None = None) -> None:
        self._timeout_s = timeout_s
        self._workers = workers
        self._by_name: dict[str, Verifier] = {}

    def __enter__(self) -> Verifiers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all worker processes; a later call starts new ones."""
        for verifier in self._by_name.values():
            close = getattr(verifier, "close", None)
            if close is not None:
                close()

    def interrupt(self, *, is_on: bool) -> None:
        """Make a ``grade`` of another thread raise ``VerifierError`` soon, until it is called with False.

        This applies to functions and judges in users' files. Other verifiers finish what they grade.
        """
        for verifier in list(self._by_name.values()):
            interrupt = getattr(verifier, "interrupt", None)
            if interrupt is not None:
                interrupt(is_on=is_on)

    def of(self, problem: Problem) -> Verifier:
        """Return the verifier that grades ``problem``."""
        return self.named(problem.verifier)

    def named(self, name: str) -> Verifier:
        """Return the verifier called ``name``."""
        if name not in self._by_name:
            self._by_name[name] = get_verifier(name, timeout_s=self._timeout_s, workers=self._workers)
        return self._by_name[name]

    def most_calls(self, names: Iterable[str]) -> int:
        """Return the largest number of calls at a time of these verifiers: 1 unless one is from a user's file."""
        return max((getattr(self.named(name), "most_calls", 1) for name in names), default=1)

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` unless the verifier can use the gold or at least one member of a gold list."""
        faults: list[ProblemError] = []
        variants = _variants(problem)
        for variant in variants:
            try:
                self.of(variant).check_gold(variant)
            except ProblemError as fault:
                faults.append(fault)
        if len(faults) == len(variants):
            raise faults[0]

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order.

        A gold that lists several answers accepts any of them. A correct response gets the answer of the first gold.
        """
        variants = [_variants(problem) for problem, _ in items]
        if all(len(alternatives) == 1 for alternatives in variants):
            return self._grade(
                [(alternatives[0], text) for alternatives, (_, text) in zip(variants, items, strict=True)]
            )
        pairs: list[tuple[Problem, str]] = []
        for alternatives, (_, text) in zip(variants, items, strict=True):
            pairs += [(variant, text) for variant in alternatives]
            # also grade the first gold itself: all correct responses get its answer
            pairs.append((alternatives[0], f"\\boxed{{{alternatives[0].gold}}}"))
        grades = iter(self._grade(pairs))
        return [_best([next(grades) for _ in alternatives], next(grades)) for alternatives in variants]

    def _grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        positions: dict[str, list[int]] = {}
        for position, (problem, _) in enumerate(items):
            positions.setdefault(problem.verifier, []).append(position)
        grade_at: dict[int, Grade] = {}
        for own in positions.values():
            grades = self.of(items[own[0]][0]).grade([items[position] for position in own])
            grade_at.update(zip(own, grades, strict=True))
        return [grade_at[position] for position in range(len(items))]


def _variants(problem: Problem) -> tuple[Problem, ...]:
    """Return a copy of the problem for each answer that its gold accepts."""
    if problem.gold[:1] != "[" or problem.verifier.removesuffix(SUFFIX) not in _READERS:
        return (problem,)
    return tuple(replace(problem, gold=gold) for gold in accepted_golds(problem.gold))


def _best(grades: Sequence[Grade], of_first_gold: Grade) -> Grade:
    """Return the first correct grade, with the first gold's answer; else the first grade."""
    right = next((grade for grade in grades if grade.correct), None)
    return grades[0] if right is None else replace(right, answer=of_first_gold.answer, mode=of_first_gold.mode)
