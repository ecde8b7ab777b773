"""What measures say of problems that are related: their intervals are over clusters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oversharp.diagnostics.audit.measure import _set_interval_unit
from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.records.types import Finding

CLUSTERS, SIZE = 12, 3
COUNTED = (
    "pass_at_k",
    "pass_at_k_delta",
    "pass_at_k_band",
    "k_star",
    "cover_at_tau_delta",
    "problems_lost",
    "temporal_forgetting",
)


def _evidence(copies: int) -> Evidence:
    """Twelve problems, each of them ``copies`` times: the base solves all now and then, later half of them are lost."""
    rng = np.random.default_rng(0)
    base, late = rng.integers(1, 5, CLUSTERS), rng.integers(4, 9, CLUSTERS) * (np.arange(CLUSTERS) % 2)
    rows = [
        (checkpoint, f"q{g:02}-{i}", 8, int(correct_G[g]))
        for checkpoint, correct_G in (("base", base), ("late", late))
        for g in range(CLUSTERS)
        for i in range(copies)
    ]
    evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", rows, n=8, ks=(1, 4))
    frames = dict.fromkeys(("sampled_counts", "problem_counts"), evidence.frames["sampled_counts"])
    return replace(evidence, frames=frames)


def _clustered(evidence: Evidence, n_clusters: int = CLUSTERS) -> Evidence:
    ids = evidence.frames["problem_counts"]["problem_id"].unique()
    return replace(evidence, cluster_of={i: int(i[1:].split("-")[0]) % n_clusters for i in ids})


def _found(name: str, evidence: Evidence) -> list[Finding]:
    compute = all_measures()[name]
    return list(compute(evidence))


@pytest.mark.parametrize("name", COUNTED[:5])
def test_an_interval_over_clusters_of_copies_is_that_of_the_problems_themselves(name: str) -> None:
    once, thrice = _found(name, _evidence(1)), _found(name, _clustered(_evidence(SIZE)))
    assert any(finding.low is not None for finding in once)
    for alone, related in zip(once, thrice, strict=True):
        if name == "cover_at_tau_delta" or alone.low is not None:
            assert (related.value, related.low, related.high) == pytest.approx((alone.value, alone.low, alone.high))
        assert related.interval_over == (None if alone.interval_over is None else "clusters")


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
def test_clusters_widen_what_copies_would_have_narrowed(name: str) -> None:
    blind, told = _found(name, _evidence(SIZE)), _found(name, _clustered(_evidence(SIZE)))
    both = [(a, b) for a, b in zip(blind, told, strict=True) if a.low is not None]
    assert {a.interval_over for a, _ in both} == {"problems"}
    assert {b.interval_over for _, b in both} == {"clusters"}
    within = [b.low <= a.low and (a.high or np.inf) <= (b.high or np.inf) for a, b in both]
    assert within
    assert all(within)
    assert any(b.low < a.low or (a.high or np.inf) < (b.high or np.inf) for a, b in both)


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
def test_nine_clusters_leave_the_value_and_the_reason_why_it_has_no_interval(name: str) -> None:
    alone, told = _found(name, _evidence(SIZE)), _found(name, _clustered(_evidence(SIZE), 9))
    assert [finding.value for finding in told] == pytest.approx([finding.value for finding in alone])
    lacking = [b for a, b in zip(alone, told, strict=True) if a.low is not None or a.high is not None]
    assert {(b.low, b.high, b.interval_over) for b in lacking} == {(None, None, None)}
    assert all("9 clusters" in str(b.why_no_interval) for b in lacking)


def test_a_measure_that_knows_no_clusters_loses_its_interval_to_them_and_keeps_it_without() -> None:
    made = Finding(checkpoint_id="late", measure="kernel_rho", unit="cosine", value=0.5, low=0.4, high=0.6, n=36)
    measure, evidence = all_measures()["kernel_rho"], _evidence(SIZE)
    assert _set_interval_unit(made, measure, evidence) == replace(made, interval_over="problems")
    told = _set_interval_unit(made, measure, _clustered(evidence))
    assert (told.value, told.low, told.high, told.interval_over) == (0.5, None, None, None)
    assert "independent" in str(told.why_no_interval)


def test_the_trainers_own_prompts_are_in_no_cluster_of_the_audit() -> None:
    made = Finding(checkpoint_id="late", measure="x", unit="share", value=0.5, low=0.4, high=0.6, n=36)
    trained = next(one for one in all_measures().values() if one.needs == ("training_tokens",))
    assert _set_interval_unit(made, trained, _clustered(_evidence(SIZE))) == replace(made, interval_over="problems")
