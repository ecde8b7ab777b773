"""Measures of an audit with a stopping rule, compared with audits that draw equally many samples of every problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from oversharp.diagnostics.measures import all_measures, explanation
from oversharp.diagnostics.measures.contract import Evidence, Measure
from oversharp.diagnostics.measures.counts import Counts, load_common_counts, load_sampled_counts
from oversharp.diagnostics.measures.coverage.pass_at_k import pass_at_k, pass_at_k_delta
from oversharp.diagnostics.measures.coverage.temporal_forgetting import temporal_forgetting
from oversharp.diagnostics.measures.examples import combine_views, tiny_evidence
from oversharp.diagnostics.measures.health.sample_rates import truncation_rate
from oversharp.diagnostics.measures.panel.scores import base_success_scopes
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.stopping import StoppingRule
from tests.measures.test_contracts import (
    GROUPS,
    Read,
    control_samples,
    key,
    panel_samples,
    random_kernels,
    random_panel,
    random_samples,
    random_scores,
)

FIRST, ENOUGH, CAP, CAP_OF_BASE = 4, 2, 16, 32
KS = (1, 2, 4, 8, 16)
#: Two problems are rarely solved, and one never.
HARD = {"q2": 0.4, "q3": 0.25, "q4": 0.0}
#: Measures of all samples. Their estimates have no bias, but are not those of an audit without the rule.
OF_ALL_SAMPLES = {
    "pass_at_k", "pass_at_k_delta", "pass_at_k_band", "k_star", "control_pass_at_k", "frontier_gain", "frontier_loss",
    "sharpening_share", "temperature_price", "temperature_returns", "interference", "interference_step",
    "interference_magnitude", "interference_magnitude_step", "interference_correlation", "interference_correlation_p",
}  # fmt: skip


def cap_of(sample: dict) -> int:
    return CAP_OF_BASE if sample["checkpoint"] == "base" else CAP


def stop(samples: list[dict]) -> list[dict]:
    """Return the samples that the rule draws, one problem of a checkpoint after the other."""
    drawn: list[dict] = []
    hits: dict[tuple[str, str], int] = {}
    ends: dict[tuple[str, str], int] = {}
    for sample in samples:
        place, index = (sample["checkpoint"], sample["problem"]), sample["sample_index"]
        if sample["greedy"]:
            drawn.append(sample)
            continue
        hits[place] = hits.get(place, 0) + sample["correct"]
        if index >= min(ends.get(place, cap_of(sample)), cap_of(sample)):
            continue
        drawn.append(sample)
        if index + 1 in (4, 8, 16) and hits[place] >= ENOUGH:
            ends[place] = index + 1
    return drawn


@pytest.fixture(scope="module")
def worlds(world: Callable, kernel_type: type) -> dict[str, Read]:
    """One stream of samples, stopped by the rule, drawn up to the caps, and of the first round alone."""
    stream = random_samples(seed=3, n=CAP_OF_BASE, hard=HARD)
    drawn = {
        "stopped": stop(stream),
        "surplus": stream,
        "capped": [sample for sample in stream if sample["sample_index"] < cap_of(sample)],
        "first": [sample for sample in stream if sample["sample_index"] < FIRST],
    }
    sizes = {
        "stopped": {"n": CAP, "n_base": CAP_OF_BASE, "first_round": FIRST, "enough": ENOUGH},
        "surplus": {"n": CAP, "n_base": CAP_OF_BASE, "first_round": FIRST, "enough": ENOUGH},
        "capped": {"n": CAP, "n_base": CAP_OF_BASE},
        "first": {"n": FIRST},
    }
    controls = {name: control_samples() for name in drawn}
    controls["first"] = [sample for sample in controls["first"] if sample["sample_index"] < FIRST]
    return {
        name: Read(
            world(
                [*samples, *panel_samples(), *controls[name]],
                ks=KS,
                mode_logps=random_scores(),
                kernels=random_kernels(kernel_type),
                groups=GROUPS,
                **random_panel(),
                **sizes[name],
            )
        )
        for name, samples in drawn.items()
    }


def values(read: Read, measure: Measure) -> dict[tuple, tuple]:
    found = sorted(read.findings(measure), key=lambda finding: str(key(finding)))
    return {key(one): (one.value, one.low, one.high, one.n) for one in found if one.value is not None}


def assert_equal(found: dict[tuple, tuple], expected: dict[tuple, tuple]) -> None:
    assert found.keys() == expected.keys()
    for place, row in found.items():
        numbers, others = ([math.nan if one is None else one for one in each] for each in (row, expected[place]))
        assert numbers == pytest.approx(others, rel=1e-12, nan_ok=True), place


@pytest.mark.slow
def test_the_rule_stops_the_problems_at_different_rounds(worlds: dict[str, Read]) -> None:
    counts = worlds["stopped"].made.db.sql("SELECT is_base, n, n_planned FROM sampled_counts").df()
    assert (counts["n"] == counts["n_planned"]).all()
    assert set(counts.loc[counts["is_base"], "n"]) >= {4, 32}
    assert set(counts.loc[~counts["is_base"], "n"]) >= {4, 8, 16}


@pytest.mark.slow
@pytest.mark.parametrize("measure", all_measures().values(), ids=lambda measure: measure.name)
def test_a_measure_uses_the_first_round_or_is_that_of_all_samples_up_to_the_cap(
    measure: Measure, worlds: dict[str, Read]
) -> None:
    stopped = values(worlds["stopped"], measure)
    assert all(row[0] is None or math.isfinite(row[0]) for row in stopped.values())
    assert_equal(values(worlds["surplus"], measure), stopped)  # samples that the rule does not draw have no effect
    if measure.first_round:
        assert_equal(stopped, values(worlds["first"], measure))
    elif measure.name not in OF_ALL_SAMPLES and measure.name != "temporal_forgetting":
        assert_equal(stopped, values(worlds["capped"], measure))


@pytest.mark.slow
def test_measures_of_the_first_round_are_not_those_of_all_samples(worlds: dict[str, Read]) -> None:
    alike = []
    for measure in all_measures().values():
        if measure.first_round and (stopped := values(worlds["stopped"], measure)):
            alike += [measure.name] * (stopped == values(worlds["capped"], measure))
    assert not alike
    assert not {measure.name for measure in all_measures().values() if measure.first_round} & OF_ALL_SAMPLES


@pytest.mark.slow
def test_pass_at_k_at_the_cap_is_that_of_all_samples(worlds: dict[str, Read]) -> None:
    for measure in (pass_at_k, pass_at_k_delta):
        stopped, capped = values(worlds["stopped"], measure), values(worlds["capped"], measure)
        assert stopped.keys() == capped.keys()
        at_cap = [place for place in stopped if place[2] == CAP and place[0] != "base" and measure is pass_at_k]
        assert len(at_cap) == (6 if measure is pass_at_k else 0)  # two checkpoints: all problems, and two tasks
        for place in at_cap:
            assert stopped[place][0] == pytest.approx(capped[place][0], abs=1e-12)


# ---------------------------------------------------------------- counts of many problems


RATE_P = np.random.default_rng(1).beta(0.4, 1.5, 400)
RULE = StoppingRule.doubling(first=8, cap=64, enough=2)


def draw_ends(seed: int, rate_P: np.ndarray = RATE_P) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the numbers of samples and of correct ones at the stop, and the correct ones of all 64 samples."""
    rng = np.random.default_rng(seed)
    correct_NP = rng.random((RULE.cap, len(rate_P))) < rate_P
    hits_RP = np.stack([correct_NP[:n].sum(axis=0) for n in RULE.rounds])
    n_P, hits_P = RULE.hits(RULE.stop(hits_RP))
    return n_P, hits_P, correct_NP.sum(axis=0)


def evidence_of(ends: dict[str, tuple[np.ndarray, np.ndarray]], *, stopped: bool, ks: tuple[int, ...]) -> Evidence:
    rows = [
        (checkpoint, f"q{i:03}", int(n), int(hits))
        for checkpoint, (n_P, hits_P) in ends.items()
        for i, (n, hits) in enumerate(zip(n_P, hits_P, strict=True))
    ]
    rule = {"first_round": 8, "enough": 2} if stopped else {}
    return tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", rows, n=64, ks=ks, **rule)


def mean_of(findings: list[Finding], checkpoint: str, k: int) -> float:
    (value,) = (one.value for one in findings if one.checkpoint_id == checkpoint and one.k == k and one.scope == "all")
    assert value is not None
    return value


def test_pass_at_k_of_stopped_problems_has_no_bias_while_the_share_of_correct_samples_has() -> None:
    ks = (1, 8, 32, 64)
    differences, of_shares = [], []
    for seed in range(12):
        n_P, hits_P, hits_of_all_P = draw_ends(seed)
        all_P = np.full_like(n_P, RULE.cap)
        stopped = pass_at_k(evidence_of({"base": (n_P, hits_P)}, stopped=True, ks=ks))
        uniform = pass_at_k(evidence_of({"base": (all_P, hits_of_all_P)}, stopped=False, ks=ks))
        differences.append([mean_of(stopped, "base", k) - mean_of(uniform, "base", k) for k in ks])
        of_shares.append((hits_P / n_P).mean() - mean_of(uniform, "base", 1))
    errors = np.std(differences, axis=0) / np.sqrt(12)
    assert (np.abs(np.mean(differences, axis=0)) <= 3 * errors + 1e-12).all()
    assert np.mean(differences, axis=0)[-1] == pytest.approx(0, abs=1e-12)  # at the cap, solved or not
    assert errors[0] < 0.002
    assert np.mean(of_shares) > 0.01


def test_pass_at_k_is_known_up_to_the_cap_and_has_an_interval_up_to_half_of_it() -> None:
    ends = {"base": draw_ends(1)[:2], "late": draw_ends(2)[:2]}
    findings = pass_at_k_delta(evidence_of(ends, stopped=True, ks=(1, 32, 64, 65)))
    assert [(one.k, one.value is None, one.low is None) for one in findings] == [
        (1, False, False), (32, False, False), (64, False, True), (65, True, True),
    ]  # fmt: skip
    assert findings[-1].why == "pass@65 needs at least 65 samples per problem; there are 64"


def test_counts_that_the_rule_cannot_leave_are_a_reason_and_no_number() -> None:
    n_P, hits_P, _ = draw_ends(1)
    early_P = np.where((np.arange(len(n_P)) == 7), 8, n_P)
    few_P = np.where((np.arange(len(n_P)) == 7), 1, hits_P)
    evidence = evidence_of({"base": (n_P, hits_P), "late": (early_P, few_P)}, stopped=True, ks=(1,))
    assert load_sampled_counts(evidence)[1] == {
        "late": "the samples of 1 of 400 problems do not fit the stopping rule; run the audit again"
    }
    frame = evidence.frames["sampled_counts"]
    short = frame.assign(n_planned=frame["n_planned"] + (frame["checkpoint_id"] == "late") * (frame.index % 2))
    why = load_sampled_counts(replace(evidence, frames={"sampled_counts": short}))[1]
    assert why["late"].startswith("200 of 400 problems have the planned number of graded samples here")


def test_problems_are_binned_by_the_unbiased_success_rate_and_unsolved_ones_are_alone() -> None:
    # 7 of 16: of the orders with one correct one among the first 8 (224) or none (8), 1/8 of the 224 begin with it
    ends = {"base": (np.array([64, 64, 16, 8]), np.array([0, 1, 7, 8]))}
    evidence = evidence_of(ends, stopped=True, ks=(1,))
    assert pass_at_k(evidence)[0].value == pytest.approx((0 + 1 / 64 + 224 / 232 / 8 + 1) / 4)
    scopes, why = base_success_scopes(evidence, [f"q{i:03}" for i in range(4)])
    assert why is None
    assert [(name, np.flatnonzero(is_in_P).tolist()) for name, is_in_P in scopes] == [
        ("base 0", [0]), ("base 0-10%", [1]), ("base 10-20%", [2]), ("base 90-100%", [3]),
    ]  # fmt: skip
    late = replace(evidence, enough=1)  # now the one correct sample is one of the last 32
    frame = late.frames["sampled_counts"]
    late = replace(late, frames={"sampled_counts": frame[frame["problem_id"].isin(["q000", "q001"])]})
    assert load_sampled_counts(late)[0]["base"].pass_at_k(1).tolist() == [0.0, 0.0]
    scopes, _ = base_success_scopes(late, ["q000", "q001"])
    assert [name for name, _ in scopes] == ["base 0", "base 0-10%"]


def solved_evidence(late_solved: list[bool | None], *, reach: int = 64) -> Evidence:
    """Base: 8, 1 and 0 of 8 correct in the first round, and all problems solved later."""
    columns = "checkpoint_id problem_id n n_correct solved n_reach"
    rows = [("base", f"q{i}", 8, hits, True, reach) for i, hits in enumerate((8, 1, 0))]
    rows += [("late", f"q{i}", 8, 0, solved, reach) for i, solved in enumerate(late_solved)]
    return tiny_evidence("problem_counts", columns, list(rows), n=reach, first_round=8, enough=2)


def test_a_problem_is_forgotten_if_no_sample_up_to_the_cap_is_correct() -> None:
    def shares(late_solved: list[bool | None]) -> list[float | None]:
        return [one.value for one in temporal_forgetting(solved_evidence(late_solved))]

    # clear: 1 of 8 against 0 of 64 has p = 8 / 72, 8 of 8 against 0 of 64 has p below 1e-9
    assert shares([False, False, False]) == [1.0, pytest.approx(1 / 3)]
    assert shares([True, False, True]) == [pytest.approx(1 / 3), 0.0]
    assert shares([False, None, False]) == [None, None]


def test_a_checkpoint_that_lacks_samples_of_later_rounds_is_no_comparison() -> None:
    counts, why = load_common_counts(solved_evidence([False, None, True]))
    assert list(counts) == ["base"]
    assert why == {"late": "1 of 3 problems lack samples of later rounds; run the audit again to complete them"}
    assert load_common_counts(solved_evidence([False, False, True]))[0]["late"].is_solved.tolist() == [
        False,
        False,
        True,
    ]


def test_the_explanation_of_a_measure_states_what_counts_with_a_stopping_rule() -> None:
    assert "only the samples of the first round count" in explanation(truncation_rate)
    assert "Stopping rule: with --until-solved" in explanation(truncation_rate)
    assert "only the samples of the first round count" not in explanation(pass_at_k)
    assert "Stopping rule: with --until-solved" in explanation(pass_at_k)


def test_counts_without_a_rule_are_those_of_before() -> None:
    evidence = evidence_of({"base": draw_ends(1)[:2]}, stopped=False, ks=(1,))
    frame = evidence.frames["sampled_counts"]
    evidence = replace(evidence, frames={"sampled_counts": frame.assign(n_planned=frame["n"])})
    counts: Counts = load_sampled_counts(evidence)[0]["base"]
    assert counts.rule is None
    assert counts.fewest == 8
    assert counts.pass_at_k(1) == pytest.approx(counts.correct_P / counts.n_P)
    assert combine_views(evidence).stopping_rule(64) is None
