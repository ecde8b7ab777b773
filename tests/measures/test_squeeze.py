import math

import numpy as np
import pytest

from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.measures.modes.exact_changes import BINS, EDGES, squeeze
from oversharp.diagnostics.statistics.intervals import ratio_interval

COLUMNS = "checkpoint_id problem_id mode logp_sum"


def gains(base, late):
    """``base`` and ``late``: {(problem, mode): probability}."""
    rows = [("base", *key, math.log(p)) for key, p in base.items()]
    rows += [("late", *key, math.log(p) if p > 0 else -math.inf) for key, p in late.items()]
    return {f.scope: f for f in squeeze(tiny_evidence("mode_logps", COLUMNS, rows))}


def test_modes_are_binned_by_the_base_and_averaged_mode_by_mode():
    base = {("q1", "a"): 0.3, ("q1", "b"): 0.2, ("q2", "c"): 0.4, ("q2", "d"): 0.004, ("q3", "e"): 0.0005}
    late = {("q1", "a"): 0.5, ("q1", "b"): 0.1, ("q2", "c"): 0.9, ("q2", "d"): 0.001, ("q3", "e"): 0.0}
    found = gains(base, late)
    assert found["base p 0.1-1"].value == pytest.approx((0.2 - 0.1 + 0.5) / 3)  # three modes, not two problems
    assert found["base p 0.1-1"].n == 3
    assert found["base p 0.001-0.01"].value == pytest.approx(-0.003)
    assert found["base p 0-0.001"].value == pytest.approx(-0.0005)
    assert "base p 0.01-0.1" not in found


def test_a_mode_just_above_an_edge_is_in_the_next_bin():
    base = {(f"q{i}", "a"): edge * 1.000001 for i, edge in enumerate(EDGES)}
    assert list(gains(base, base)) == list(BINS[1:])
    below = {(f"q{i}", "a"): edge * 0.999999 for i, edge in enumerate(EDGES)}
    assert list(gains(below, below)) == list(BINS[:-1])


def test_names_of_bins_sort_as_their_probabilities():
    assert list(BINS) == sorted(BINS)


def test_problems_are_resampled_not_modes():
    rng = np.random.default_rng(5)
    gain_P = rng.uniform(0.0, 0.2, size=12)
    base = {(f"q{i:02}", mode): 0.2 for i in range(12) for mode in "abcd"}
    late = {(problem, mode): 0.2 + gain_P[int(problem[1:])] for problem, mode in base}
    found = gains(base, late)["base p 0.1-1"]
    expected = ratio_interval(4 * gain_P, np.full(12, 4.0), floor=False)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.n == 48


def test_moderate_sharpening_loses_in_no_bin_and_a_planted_squeeze_does():
    base = {("q1", "a"): 0.5, ("q1", "b"): 0.02, ("q2", "a"): 0.3, ("q2", "b"): 0.05}
    moderate = {key: p * 1.5 for key, p in base.items()}
    squeezed = {key: p * 1.9 if p > 0.1 else p / 10 for key, p in base.items()}
    assert all(f.value > 0 for f in gains(base, moderate).values())
    found = gains(base, squeezed)
    assert found["base p 0.1-1"].value > 0 > found["base p 0.01-0.1"].value
