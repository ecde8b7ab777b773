from dataclasses import replace
from math import cosh, log

import numpy as np
import pytest
from scipy.stats import ttest_ind

from oversharp.diagnostics.measures.kernel.sampling_bias.partitions import welch_difference
from oversharp.diagnostics.measures.kernel.sampling_bias.z_prime_fall import DIFFERENCE, ONE_KIND, z_prime_fall

REALISED, PREDICTED, BESIDE = "realised, Z above 1", "predicted, Z above 1", "realised, Z not above 1"


def fallen(world, *, late_b=0.05, late_d=0.2, graded_mode="a"):
    """q1: mode a was sampled with a wrong response, b was not. q2: both samples are the correct mode c, d was not."""
    samples = [
        {"problem": "q1", "sample_index": 0, "mode": graded_mode, "correct": True, "base": 0.4},
        {"problem": "q1", "sample_index": 1, "mode": "x", "correct": False, "base": 0.4},
        {"problem": "q2", "sample_index": 0, "mode": "c", "correct": True, "base": 0.5},
        {"problem": "q2", "sample_index": 1, "mode": "c", "correct": True, "base": 0.5},
    ]
    samples = [
        {**{k: v for k, v in s.items() if k != "base"}, "checkpoint": name, "own_logp_sum": log(s["base"]),
         "base_logp_sum": log(s["base"])}
        for name in ("base", "late")
        for s in samples
    ]  # fmt: skip
    modes = [
        (name, problem, mode, log(p))
        for name, values in {"base": (0.4, 0.1, 0.5, 0.2), "late": (0.9, late_b, 0.5, late_d)}.items()
        for (problem, mode), p in zip((("q1", "a"), ("q1", "b"), ("q2", "c"), ("q2", "d")), values, strict=True)
    ]
    return world(samples, n=2, panel=2, mode_logps=modes).evidence()


def test_the_unsampled_mode_alone_is_compared(world, found):
    findings = found(z_prime_fall(fallen(world)))
    assert findings["late", REALISED].value == pytest.approx(log(0.5))
    # Z′ = 0.4·(√e + 1/√e) + 0.2
    assert findings["late", PREDICTED].value == pytest.approx(-log(0.8 * cosh(0.5) + 0.2))
    assert findings["late", BESIDE].value == pytest.approx(0.0)
    assert ("base", REALISED) not in findings


@pytest.mark.slow
def test_a_batch_without_advantage_is_the_control(world, found):
    findings = found(z_prime_fall(fallen(world, late_d=0.1)))
    assert findings["late", BESIDE].value == pytest.approx(log(0.5))
    assert findings["late", BESIDE].n == 1


@pytest.mark.slow
def test_modes_are_matched_by_the_verifiers_name_for_them(world, found):
    findings = found(z_prime_fall(fallen(world, graded_mode="b")))
    assert findings["late", REALISED].value == pytest.approx(log(0.9 / 0.4))


@pytest.mark.slow
def test_without_the_batch_of_the_checkpoint_before_nothing_is_predicted(world, found):
    evidence = fallen(world)
    own = evidence.frames["own_logps"]
    part = own[(own["checkpoint_id"] != "base") | (own["problem_id"] != "q1")]
    evidence = replace(evidence, frames={**evidence.frames, "own_logps": part})
    assert found(z_prime_fall(evidence))["late", PREDICTED].value is None


@pytest.mark.slow
def test_the_difference_is_realised_with_less_realised_without(world, found):
    finding = found(z_prime_fall(fallen(world, late_b=0.05, late_d=0.1)))["late", DIFFERENCE]
    assert finding.value == pytest.approx(0.0)
    finding = found(z_prime_fall(fallen(world, late_b=0.05, late_d=0.2)))["late", DIFFERENCE]
    assert (finding.value, finding.low, finding.n) == (pytest.approx(log(0.5)), None, 2)


@pytest.mark.slow
def test_one_kind_of_problem_is_no_comparison(world, found):
    evidence = fallen(world)
    read = {view: evidence.frames[view] for view in ("own_logps", "mode_logps", "graded_samples")}
    frames = {view: frame[frame["problem_id"] == "q1"] for view, frame in read.items()}
    findings = found(z_prime_fall(replace(evidence, frames=frames)))
    assert findings["late", REALISED].value is not None
    assert findings["late", DIFFERENCE].why == ONE_KIND


def test_the_interval_of_the_difference_is_welchs():
    these, those = [-0.5, -0.2, -0.9, -0.4], [0.1, -0.1, 0.6]
    interval = welch_difference(these, those)
    expected = ttest_ind(these, those, equal_var=False).confidence_interval(0.95)
    assert interval.mean == pytest.approx(np.mean(these) - np.mean(those))
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert interval.n == 7
    assert welch_difference([1.0], those).low is None
    assert welch_difference([1.0, 1.0], [0.0, 0.0]).high == 1.0
