import itertools

import numpy as np
import pytest

from oversharp.diagnostics.measures.coverage.greedy import f1_interval, greedy_failure_f1
from tests.cases import each_case


def problem(name, greedy, corrects, checkpoint="base"):
    row = {"checkpoint": checkpoint, "problem": name}
    return [
        row | {"greedy": True, "correct": bool(greedy)},
        *(row | {"sample_index": i, "correct": bool(correct)} for i, correct in enumerate(corrects)),
    ]


def values(made):
    """(checkpoint, scope) → F1."""
    return {(finding.checkpoint_id, finding.scope): finding.value for finding in greedy_failure_f1(made.evidence())}


@each_case("both", itertools.product(itertools.product([False, True], repeat=3), repeat=2))
def test_f1_is_twice_the_hits_over_what_is_predicted_and_what_is_there(both):
    truth, guess = both
    hits, predicted, there = sum(map(min, truth, guess)), sum(guess), sum(truth)
    found = f1_interval(np.array(guess), np.array(truth))
    assert (found and found.mean) == (2 * hits / (predicted + there) if predicted + there else None)


def test_f1_counts_hits_twice_in_either_direction(world):
    samples = problem("q1", 0, [0, 0]) + problem("q2", 0, [1, 0]) + problem("q3", 0, [1, 1])  # hard, hard, solvable
    samples += problem("q4", 1, [1, 1]) + problem("q5", 1, [0, 0])  # solvable, hard
    found = values(world(samples, n=2))
    assert found["base", "all"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))  # TP q1 q2, FP q3, FN q5
    assert found["base", "highly_solvable"] == pytest.approx(2 * 1 / (2 * 1 + 1 + 1))  # TP q4, FP q5, FN q3


@pytest.mark.slow
@pytest.mark.parametrize(("hits", "solvable"), [(6, True), (5, False)])
def test_a_rate_of_six_tenths_is_solvable(world, hits, solvable):
    found = values(world(problem("q", solvable, [i < hits for i in range(10)]), n=10))
    assert found["base", "highly_solvable" if solvable else "all"] == 1.0


def test_nothing_to_find_and_nothing_found_is_unknown_not_zero(world):
    found = values(world(problem("q1", 1, [1, 1]) + problem("q2", 1, [1, 1]), n=2))
    assert found == {("base", "all"): None, ("base", "highly_solvable"): 1.0}
    assert "0/0" in greedy_failure_f1.missing


def test_a_filter_that_never_hits_is_zero(world):
    found = values(world(problem("q1", 1, [0, 0]) + problem("q2", 0, [1, 1]), n=2))
    assert found == {("base", "all"): 0.0, ("base", "highly_solvable"): 0.0}


@pytest.mark.slow
def test_only_samples_that_every_checkpoint_has_are_counted(world):
    samples = problem("q", 0, [0, 0, 1, 1, 1, 1]) + problem("q", 0, [0, 0], checkpoint="late")
    store = world(samples, n=2)
    store.db.execute("UPDATE audits SET n_base = 6")
    assert values(store)["base", "all"] == 1.0


def test_a_checkpoint_without_all_greedy_responses_or_samples_is_unknown(world):
    whole = problem("q1", 1, [1, 0]) + problem("q2", 0, [0, 0])
    samples = [row | {"checkpoint": "late"} for row in whole[:-1]] + [row | {"checkpoint": "slow"} for row in whole[:3]]
    samples += [row | {"checkpoint": "none"} for row in whole if not row.get("greedy")]
    findings = greedy_failure_f1(world(whole + samples, n=2).evidence())
    assert {f.checkpoint_id for f in findings if f.value is not None} == {"base"}
    assert {f.checkpoint_id for f in findings if f.why == greedy_failure_f1.missing} == {"late", "slow", "none"}


@pytest.mark.slow
def test_intervals_are_over_problems_from_thirty_on(world):
    rng = np.random.default_rng(4)
    greedy_P, solvable_P = rng.random(40) < 0.5, rng.random(40) < 0.5
    samples = [
        row
        for i, (greedy, solvable) in enumerate(zip(greedy_P, solvable_P, strict=True))
        for row in problem(f"q{i:02}", greedy, [solvable] * 2)
    ]
    found = next(f for f in greedy_failure_f1(world(samples, n=2).evidence()) if f.scope == "highly_solvable")
    both_P, any_P = 2.0 * (greedy_P & solvable_P), greedy_P + 1.0 * solvable_P
    ratio = both_P.sum() / any_P.sum()
    residual_P = (both_P - ratio * any_P) / any_P.mean()
    assert found.value == pytest.approx(ratio)
    reach = 1.959964 * np.sqrt(39 * residual_P.var(ddof=1) + 1) / 40
    assert found.high - found.value == pytest.approx(reach, rel=1e-5)
    few = greedy_failure_f1(world(samples[: 29 * 3], n=2).evidence())
    assert {(f.low, f.high, f.n) for f in few} == {(None, None, 29)}
