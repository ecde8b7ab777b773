import numpy as np
import pytest

from oversharp.diagnostics.measures.tokens.entropy import token_entropy_by_position
from tests.measures.samples import response


def test_stretches_double_and_the_last_one_is_cut_where_the_response_ends(world):
    found = world([response("q", [8.0, 4.0, 2.0, 1.0, 0.0])], n=1).values(token_entropy_by_position)
    assert found == {
        ("base", "tokens 00001"): 8.0,
        ("base", "tokens 00002-00003"): 3.0,
        ("base", "tokens 00004-00007"): 0.5,
    }


@pytest.mark.slow
def test_tokens_of_a_problem_weigh_alike_and_then_problems_do(world):
    samples = [response("q1", [0, 2, 2]), response("q1", [0, 5], index=1)]
    samples += [response("q2", [0, 1]), response("q2", [0], index=1)]
    rows = {row["scope"]: row for row in world(samples, n=2).sql_rows(token_entropy_by_position)}
    assert rows["tokens 00002-00003"]["value"] == pytest.approx(((2 + 2 + 5) / 3 + 1) / 2)
    assert rows["tokens 00002-00003"]["n"] == 2


def test_problems_that_do_not_reach_a_stretch_are_not_counted_there(world):
    rows = world([response("q1", [1, 1, 1, 1]), response("q2", [1])], n=1).sql_rows(token_entropy_by_position)
    assert [row["n"] for row in rows] == [2, 1, 1]


def test_the_order_of_names_is_the_order_of_positions(world):
    rows = world([response("q", np.arange(5000) / 5000)], n=1).sql_rows(token_entropy_by_position)
    names = [row["scope"] for row in rows]
    assert len(names) == 13
    assert names == sorted(names)
    assert names[-1] == "tokens 04096-08191"
    assert [row["value"] for row in rows] == sorted(row["value"] for row in rows)


def test_sample_numbers_that_only_some_problems_have_scored_are_left_out(world):
    # sample 1 of q1 is scored by chance, because another checkpoint gave the same response
    samples = [response("q1", [1.0]), response("q2", [3.0]), response("q1", [0.0], index=1)]
    assert world(samples, n=2).values(token_entropy_by_position) == {("base", "tokens 00001"): 2.0}


def test_a_checkpoint_that_is_scored_in_part_has_no_row(world):
    samples = [response("q1", [1.0]), response("q2", [3.0]), response("q1", [1.0], checkpoint="late")]
    assert world(samples, n=1).values(token_entropy_by_position) == {("base", "tokens 00001"): 2.0}


@pytest.mark.slow
def test_intervals_are_over_problems_from_thirty_on(world):
    entropy_P = np.random.default_rng(2).integers(0, 9, 30) / 8
    samples = [response(f"q{i:02}", [entropy] * 3) for i, entropy in enumerate(entropy_P)]
    half_width = 1.959964 * entropy_P.std(ddof=1) / np.sqrt(30)
    for row in world(samples, n=1).sql_rows(token_entropy_by_position):
        assert (row["low"], row["high"]) == pytest.approx(
            (entropy_P.mean() - half_width, entropy_P.mean() + half_width)
        )
    few = world(samples[:29], n=1).sql_rows(token_entropy_by_position)
    assert all(row["low"] is None and row["high"] is None for row in few)


def test_samples_with_unknown_entropies_are_left_out_not_counted_as_0(world):
    unknown = response("q1", [9.0]) | {"token_entropies": None}
    samples = [unknown, response("q1", [2.0], index=1), response("q2", [8.0]), response("q2", [4.0], index=1)]
    rows = world(samples, n=2).sql_rows(token_entropy_by_position)
    assert [(row["scope"], row["value"], row["n"]) for row in rows] == [("tokens 00001", 3.0, 2)]
    assert world([unknown], n=1).sql_rows(token_entropy_by_position) == []
