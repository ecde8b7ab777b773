"""Verifiers by name, and problems of several verifiers in one batch."""

import subprocess
import sys

import pytest

from oversharp.diagnostics.records.errors import VerifierError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.verifiers import Verifiers, get_verifier, verifier_names


@pytest.mark.parametrize("name", verifier_names())
def test_every_verifier_knows_its_name_and_takes_an_empty_batch(name: str) -> None:
    verifier = get_verifier(name)
    assert verifier.name == name
    assert verifier.grade([]) == []


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(VerifierError, match="'maths' is unknown; use one of: math"):
        get_verifier("maths")


def test_a_mixed_batch_is_graded_in_order_by_each_problems_own_verifier() -> None:
    exact = Problem(task="t", prompt="p", gold="5", verifier="exact")
    modes = Problem(task="t", prompt="p", gold="5", verifier="modes", modes=("2 + 3",))
    expression = Problem(task="t", prompt="p", gold="5", verifier="expression")
    items = [(modes, "5"), (exact, "5"), (expression, "2+3"), (modes, "2 + 3"), (exact, "2 + 3")]
    with Verifiers() as verifiers:
        assert [grade.correct for grade in verifiers.grade(items)] == [False, True, True, True, False]


@pytest.mark.slow
def test_asking_for_names_loads_no_mathematics() -> None:
    code = (
        "import sys; from oversharp.diagnostics.verifiers import verifier_names, get_verifier; verifier_names();"
        "get_verifier('modes'); get_verifier('math');"
        "sys.exit(bool({'sympy', 'math_verify', 'reasoning_gym', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
