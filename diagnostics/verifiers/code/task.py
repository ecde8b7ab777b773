"""Tests of a code task, as stored in a problem's ``meta["code"]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import Problem

#: How a program is tested: standard input and output, calls of a function, or a script of asserts.
Form = Literal["stdio", "calls", "script"]
META_KEY = "code"
#: Answer of a program that passes all tests, and the gold of a problem whose file contains no solution.
PASSES = "passes all tests"


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeTask:
    """Tests of a problem, and how a program is built from a response.

    Attributes:
        form: how the program is tested.
        cases: for "stdio" [input text, output text]; for "calls" [arguments, accepted results].
        entry: name of the tested function or method; "" for "stdio".
        tests: for "script" the asserts, as Python code.
        remote: names in ``tests`` that the program defines.
        test_context: code that runs before ``tests``, such as helper functions in the prompt.
        context: code that runs before the program, such as imports.
        prefix: text that a bare completion continues.
        in_place: whether arguments that the program changes are changed for the tests as well.
    """

    form: Form
    cases: Sequence[Sequence[Any]] = ()
    entry: str = ""
    tests: str = ""
    remote: Sequence[str] = ()
    test_context: str = ""
    context: str = ""
    prefix: str = ""
    in_place: bool = False

    def to_meta(self) -> Mapping[str, Any]:
        """Return the fields that differ from their default, for ``Problem.meta``."""
        default = asdict(CodeTask(form=self.form))
        return {name: value for name, value in asdict(self).items() if name == "form" or value != default[name]}


def code_task(problem: Problem) -> CodeTask:
    """Return the tests of a problem. Raises ``ProblemError`` if it has none."""
    fields = problem.meta.get(META_KEY)
    if not isinstance(fields, Mapping):
        raise ProblemError(
            'the verifier "code" needs tests: the fields of HumanEval, MBPP, LiveCodeBench or APPS, or "tests"'
        )
    return CodeTask(**fields)
