"""reasoning-gym's own scorers as verifier."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import NO_ANSWER, Problem
from oversharp.diagnostics.tasks.reasoning_gym import generated_problems
from oversharp.diagnostics.verifiers.packing import pack, unpack
from oversharp.diagnostics.verifiers.reasoning_gym import ReasoningGymVerifier

json_leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
hashable = st.text() | st.integers() | st.tuples(st.integers(), st.integers())
entries = st.recursive(
    json_leaves,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(hashable, inner)
        | st.dictionaries(st.text(), inner)
    ),
)


@pytest.mark.slow
@given(entries)
def test_entries_survive_the_store(entry: object) -> None:
    assert unpack(json.loads(json.dumps(pack(entry)))) == entry


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"x", object()])
def test_what_json_cannot_keep_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="cannot be stored"):
        pack({"key": [value]})


@pytest.mark.slow
def test_the_generators_own_scorer_grades_from_the_stored_problem_alone() -> None:
    # rearc's scorer tells tuples from lists: a plain JSON round trip would cost correct answers their reward
    for generator in ("rearc", "countdown", "chain_sum"):
        [made] = generated_problems(generator, size=1, seed=3)
        stored = replace(made, meta=json.loads(json.dumps(made.meta)))
        assert stored.problem_id == made.problem_id
        with ReasoningGymVerifier(timeout_s=60.0, workers=1) as verifier:
            right, tagged, wrong, empty = verifier.grade(
                [(stored, made.gold), (stored, f"so <answer>{made.gold}</answer>."), (stored, "no idea"), (stored, " ")]
            )
        assert right.correct
        assert tagged.correct
        assert tagged.answer == right.answer
        assert 0.0 <= wrong.reward < 1.0
        assert (wrong.state, wrong.answer) == ("ok", "no idea")
        assert (empty.state, empty.answer, empty.mode) == ("parse_fail", NO_ANSWER, None)


@pytest.mark.slow
def test_a_scorer_that_raises_is_a_state_and_spares_the_others() -> None:
    [made] = generated_problems("chain_sum", size=1, seed=0)
    broken = replace(made, meta={"generator": "chain_sum", "entry": {"question": "?"}})  # the scorer wants "answer"
    with ReasoningGymVerifier(timeout_s=60.0, workers=1) as verifier:
        error, right = verifier.grade([(broken, "5"), (made, made.gold)])
    assert (error.state, error.reward, error.answer) == ("error", 0.0, "5")
    assert "KeyError" in error.reason
    assert right.correct


def test_a_problem_without_its_entry_is_an_error_of_the_data() -> None:
    problem = Problem(task="t", prompt="p", gold="5", verifier="reasoning_gym")
    with pytest.raises(ProblemError, match="--task reasoning_gym"):
        ReasoningGymVerifier().check_gold(problem)
