"""Verifier "program", which executes one-line programs on the problem's cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import NO_ANSWER, Grade, Problem
from oversharp.diagnostics.verifiers.extraction import last_boxed, tagged_answer, unwrap
from oversharp.diagnostics.verifiers.programs.grammar import (
    ALL_OPERATORS,
    Grammar,
    GrammarError,
    parse_program,
    run_cases,
)
from oversharp.diagnostics.verifiers.reading.responses import answer_text


@dataclass(frozen=True, kw_only=True)
class FunctionCases:
    """Arguments and expected results of a problem, in the same order."""

    arguments: tuple[tuple[int, ...], ...]
    results: tuple[int, ...]


class ProgramVerifier:
    """Accept a one-line program that returns the expected result in every case.

    ``problem.meta["input_output"]`` has the cases as in APPS: ``inputs`` (a list of arguments per case) and
    ``outputs``. ``meta["parameters"]`` has the parameters' names. ``meta`` may also restrict the grammar:
    ``operators``, ``numbers``, ``most_operands`` and ``brackets``. The program is the content of the last
    ``\\boxed{…}`` or ``<answer>…</answer>``, else the whole response. A text outside the grammar is ``parse_fail``, and
    is not executed. The grade's mode is the program in Python's own notation. Its answer is the list of results, so
    programs with the same behaviour have the same answer.

    >>> meta = {"parameters": ["a", "b"], "input_output": {"inputs": [[2, 1], [1, 3]], "outputs": [3, 4]}}
    >>> problem = Problem(task="t", prompt="f(2,1) = 3", gold="a + b", verifier="program", meta=meta)
    >>> [(g.mode, g.answer, g.reward) for g in ProgramVerifier().grade([(problem, "b+a"), (problem, "a * b")])]
    [('b + a', '3 4', 1.0), ('a * b', '2 3', 0.0)]
    """

    name = "program"

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` unless ``meta`` has valid rules and cases, and the gold is a correct program."""
        grade = self._grade(problem, problem.gold, _grammar(problem.meta), _cases(problem.meta))
        if not grade.correct:
            raise ProblemError(
                f"answer {problem.gold[:40]!r} is not a correct program ({grade.reason}); give a program that returns "
                'the "outputs"'
            )

    def guess_share(self, problem: Problem) -> float | None:
        """Return 0 if all correct programs are listed; else None, because the cases may miss a fault."""
        return 0.0 if problem.modes else None

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order; ``parse_fail`` outside the grammar."""
        # keyed by identity: the rules of a problem are the same for its thousand samples
        rules: dict[int, tuple[Grammar, FunctionCases]] = {}
        grades = []
        for problem, text in items:
            if id(problem) not in rules:
                rules[id(problem)] = _grammar(problem.meta), _cases(problem.meta)
            grades.append(self._grade(problem, text, *rules[id(problem)]))
        return grades

    def _grade(self, problem: Problem, text: str, grammar: Grammar, cases: FunctionCases) -> Grade:
        text = answer_text(text, prompt=problem.prompt)
        try:
            program = parse_program(unwrap(last_boxed(text) or tagged_answer(text) or text), grammar)
        except GrammarError as error:
            return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="parse_fail", reason=str(error))
        try:
            results = run_cases(program, cases.arguments)
        except ZeroDivisionError:
            return Grade(answer=program.text, mode=program.text, reward=0.0, reason="division by zero")
        answer = " ".join(map(str, results))
        for arguments, result, expected in zip(cases.arguments, results, cases.results, strict=True):
            if result != expected:
                reason = f"returns {result} for {arguments}; expected {expected}"
                return Grade(answer=answer, mode=program.text, reward=0.0, reason=reason)
        return Grade(answer=answer, mode=program.text, reward=1.0)


def _grammar(meta: Mapping[str, Any]) -> Grammar:
    parameters = _members(meta.get("parameters"), str)
    operators = _members(meta.get("operators", ALL_OPERATORS), str)
    numbers = meta.get("numbers")
    most_operands, brackets = meta.get("most_operands"), meta.get("brackets", True)
    if not parameters or not all(map(_is_name, parameters)):
        raise ProblemError('the verifier "program" needs "parameters", a list of names such as ["a", "b"]')
    if not operators or not set(operators) <= set(ALL_OPERATORS):
        raise ProblemError(f'"operators" must be a list with members of {", ".join(ALL_OPERATORS)}')
    if numbers is not None and not _members(numbers, int):
        raise ProblemError('"numbers" must be a list of whole numbers, such as [1, 2, 3]')
    if most_operands is not None and (type(most_operands) is not int or most_operands < 1):
        raise ProblemError('"most_operands" must be a whole number of at least 1')
    if not isinstance(brackets, bool):
        raise ProblemError('"brackets" must be true or false')
    return Grammar(
        parameters=parameters,
        operators=operators,
        numbers=None if numbers is None else frozenset(_members(numbers, int)),
        most_operands=most_operands,
        brackets=brackets,
    )


def _cases(meta: Mapping[str, Any]) -> FunctionCases:
    given = meta.get("input_output")
    given = given if isinstance(given, Mapping) else {}
    inputs, outputs = _members(given.get("inputs"), list | tuple), _members(given.get("outputs"), int)
    if not inputs or len(inputs) != len(outputs):
        raise ProblemError(
            'the verifier "program" needs "input_output" with equally long lists, such as '
            '{"inputs": [[2, 1], [1, 3]], "outputs": [3, 4]}'
        )
    arguments, n_parameters = tuple(_members(case, int) for case in inputs), len(meta["parameters"])
    if not all(len(case) == n_parameters for case in arguments):
        raise ProblemError(f'"inputs" must have {n_parameters} whole numbers per case, one per parameter')
    return FunctionCases(arguments=arguments, results=outputs)


def _is_name(text: str) -> bool:
    return text.isascii() and text.isidentifier() and not iskeyword(text)


def _members(value: object, kind: Any) -> tuple[Any, ...]:
    """Return the members of a list if all are of this kind, else an empty tuple. A bool is no whole number."""
    if not isinstance(value, list | tuple):
        return ()
    is_kind = all(isinstance(member, kind) and not isinstance(member, bool) for member in value)
    return tuple(value) if is_kind else ()
