import numpy as np
import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.examples import tiny_evidence

FLOW = ("problems_lost", "problems_gained", "problems_kept")


def findings(now, before=(3, 1, 0, 0)):
    """Lost, gained and kept, from the correct samples among 4 of every problem."""
    counts = {"base": before, "late": now}
    rows = [(c, f"q{i}", 4, correct) for c, row in counts.items() for i, correct in enumerate(row)]
    evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", rows)
    return [get_measure(name)(evidence)[0] for name in FLOW]


@pytest.mark.parametrize(
    ("now", "lost", "gained", "kept"),
    [
        ((0, 1, 0, 0), 0.25, 0.0, 0.25),
        ((0, 0, 4, 4), 0.5, 0.5, 0.0),
        ((1, 1, 0, 0), 0.0, 0.0, 0.5),  # a mere drop
        ((3, 1, 1, 0), 0.0, 0.25, 0.5),
        ((4, 4, 0, 0), 0.0, 0.0, 0.5),  # a mere rise
        ((1, 0, 4, 4), 0.25, 0.5, 0.25),
    ],
)
def test_what_left_reach_what_came_and_what_stayed_is_counted(now, lost, gained, kept):
    assert [finding.value for finding in findings(now)] == [lost, gained, kept]


def test_no_loss_still_has_an_interval():
    finding, *_ = findings((3, 1, 0, 0))
    assert (finding.value, finding.low, finding.n) == (0.0, 0.0, 4)
    assert finding.high > 0


def test_without_any_change_chance_gains_as_many_as_it_loses():
    rng = np.random.default_rng(3)
    rows = [(c, f"q{i:04}", 64, int(rng.binomial(64, 0.01))) for c in ("base", "late") for i in range(3000)]
    evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", rows, n=64)
    lost, gained, _ = (get_measure(name)(evidence)[0] for name in FLOW)
    assert gained.value > 0.15
    assert gained.value == pytest.approx(lost.value, abs=0.04)


@pytest.mark.parametrize(
    ("now", "name", "value", "n"),
    [
        ((0, 1, 4, 0), "support_retention", 0.5, 2),
        ((0, 1, 4, 0), "net_discovery", 0.5, 2),
        ((3, 1, 0, 0), "support_retention", 1.0, 2),
        ((3, 1, 0, 0), "net_discovery", 0.0, 2),
        ((0, 0, 1, 1), "net_discovery", 1.0, 2),
    ],
)
def test_retention_is_a_share_of_what_the_base_solved_and_discovery_of_what_is_solved_now(now, name, value, n):
    found = rates(now)[name]
    assert (found.value, found.n) == (value, n)


def test_a_rate_of_no_problem_is_unknown():
    assert rates((0, 1, 0, 0), before=(0, 0, 0, 0))["support_retention"].why == "the base solves no problem"
    assert rates((0, 0, 0, 0))["net_discovery"].why == "no problem is solved here"


def rates(now, before=(3, 1, 0, 0)):
    """Rates that are shares of some problems only."""
    rows = [(c, f"q{i}", 4, k) for c, row in (("base", before), ("late", now)) for i, k in enumerate(row)]
    evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", rows)
    return {name: get_measure(name)(evidence)[0] for name in ("support_retention", "net_discovery")}
