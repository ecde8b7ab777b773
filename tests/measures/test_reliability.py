from fractions import Fraction
from math import comb

import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.statistics.pass_at_k import at_least_table, mean_above_half_table, pass_at_k_table

COLUMNS = "checkpoint_id problem_id n n_correct"


def findings(name, counts, n, ks):
    rows = [(c, f"q{i:03}", n, k) for c, row in counts.items() for i, k in enumerate(row)]
    made = get_measure(name)(tiny_evidence("sampled_counts", COLUMNS, rows, n=n, ks=ks))
    return {(f.checkpoint_id, f.scope, f.k): f for f in made}


def test_all_of_k_are_correct_as_often_as_k_of_the_correct_ones_are_drawn():
    found = findings("pass_hat_k", {"base": (6, 3)}, 8, (3,))
    assert found["base", "all", 3].value == pytest.approx((comb(6, 3) + comb(3, 3)) / comb(8, 3) / 2)


def test_one_of_k_is_pass_at_k_and_all_of_k_its_mirror():
    table = pass_at_k_table(9, [4])[:, 0]
    assert at_least_table(9, 4, 1) == pytest.approx(table)
    assert at_least_table(9, 4, 4) == pytest.approx(1 - table[::-1])


@pytest.mark.parametrize(("n", "k"), [(1, 1), (7, 3), (12, 8), (12, 12), (300, 150)])
def test_tables_are_sums_of_the_hypergeometric_distribution(n: int, k: int):
    mass_CX = [[comb(c, x) * comb(n - c, k - x) for x in range(k + 1)] for c in range(n + 1)]
    for least in {1, (k + 1) // 2, k}:
        tails = [float(Fraction(sum(mass[least:]), comb(n, k))) for mass in mass_CX]
        assert at_least_table(n, k, least) == pytest.approx(tails, rel=1e-13, abs=0.0)
    half = -(-k // 2)
    if k > 1:
        means = [
            Fraction(2 * sum((x - half) * mass[x] for x in range(half, k + 1)), k * comb(n, k)) for mass in mass_CX
        ]
        assert mean_above_half_table(n, k) == pytest.approx([float(mean) for mean in means], rel=1e-13, abs=0.0)


def test_shares_are_met_in_whole_responses():
    # a quarter of 8 are 2, one half 4, three quarters 6; 4 of 8 correct, k = 8: all are drawn
    found = findings("g_pass_at_k", {"base": (4,)}, 8, (8,))
    assert [found["base", f"tau {tau}", 8].value for tau in (0.25, 0.5, 0.75)] == [1.0, 1.0, 0.0]
    # above one half: 5, 6, 7 or 8 of 8
    assert found["base", "mean", 8].value == 0.0
    assert findings("g_pass_at_k", {"base": (7,)}, 8, (8,))["base", "mean", 8].value == pytest.approx(2 / 8 * 3)


def test_a_model_that_became_sure_of_half_gains_where_all_must_be_right_and_its_twin_does_not():
    found = findings("pass_hat_k", {"base": (10,) * 40, "late": (0, 20) * 20, "twin": (10,) * 40}, 20, (1, 8))
    assert found["base", "all", 1].value == found["late", "all", 1].value == 0.5
    assert found["late", "all", 8].low > found["base", "all", 8].high
    assert found["twin", "all", 8].value == found["base", "all", 8].value


def test_what_k_or_the_samples_do_not_allow_has_a_reason():
    found = findings("g_pass_at_k", {"base": (2, 2)}, 4, (1, 4, 8))
    assert found["base", "mean", 1].why == "the mean over shares above one half needs k of 2 or more"
    assert found["base", "tau 0.5", 8].why == "pass@8 needs at least 8 samples per problem; there are 4"
    assert found["base", "tau 0.5", 4].low is None
    with pytest.raises(ValueError, match="needs 1 <= least <= k <= n; got least = 3, k = 2, n = 4"):
        at_least_table(4, 2, 3)
