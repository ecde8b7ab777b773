import itertools

import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.coverage.changes import pass_at_k_band
from oversharp.diagnostics.measures.examples import tiny_evidence

COLUMNS = "checkpoint_id problem_id n n_correct"


def counts(checkpoint_id, *hits, n=8, n_problems=60):
    return [(checkpoint_id, f"q{i:02}", n, hits[i % len(hits)]) for i in range(n_problems)]


def evidence_of(*rows, n=8, ks=(1, 2, 4)):
    return tiny_evidence("sampled_counts", COLUMNS, list(itertools.chain(*rows)), n=n, ks=ks)


def by_key(findings):
    return {(f.checkpoint_id, f.k): f for f in findings}


def test_the_values_are_those_of_the_single_differences_and_the_band_is_wider():
    evidence = evidence_of(
        counts("base", 1, 3, 5, 2, 7), *(counts(f"c{t}", *[(h * t) % 9 for h in range(11)]) for t in range(1, 6))
    )
    band, single = by_key(pass_at_k_band(evidence)), by_key(get_measure("pass_at_k_delta")(evidence))
    assert band.keys() == single.keys()
    for key, found in band.items():
        assert found.value == pytest.approx(single[key].value)
        assert found.n == single[key].n == 60
        assert found.high - found.low > 1.1 * (single[key].high - single[key].low)


def test_a_planted_loss_lies_below_zero_and_the_clean_twin_does_not():
    found = by_key(pass_at_k_band(evidence_of(counts("base", 2), counts("late", 8, 0), counts("twin", 2, 2, 3, 1))))
    assert found["late", 4].high < 0 < found["late", 1].low
    assert found["twin", 4].low < 0 < found["twin", 4].high
    assert {f.scope for f in found.values()} == {"all"}


def test_k_are_the_powers_of_two_up_to_half_of_the_samples():
    assert [k for _, k in by_key(pass_at_k_band(evidence_of(counts("base", 2), counts("late", 3), ks=(1, 8))))] == [
        1,
        2,
        4,
    ]
    (only,) = pass_at_k_band(evidence_of(counts("base", 1, n=1), counts("late", 1, n=1), n=1))
    assert (only.k, only.value) == (1, 0.0)


def test_one_problem_has_values_but_no_band():
    found = by_key(pass_at_k_band(evidence_of(counts("base", 2, n_problems=1), counts("late", 4, n_problems=1))))
    assert found["late", 1].value == pytest.approx(0.25)
    assert {(f.low, f.high) for f in found.values()} == {(None, None)}
