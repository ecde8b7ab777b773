from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table, within_problem_variance_table


def exact_miss(n: int, c: int, k: int) -> Fraction:
    return Fraction(comb(n - c, k), comb(n, k))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_every_entry_is_the_exact_fraction(n_and_k):
    n, k = n_and_k
    exact = [float(1 - exact_miss(n, c, k)) for c in range(n + 1)]
    np.testing.assert_allclose(pass_at_k_table(n, [k])[:, 0], exact, rtol=1e-13, atol=0)


@pytest.mark.parametrize("n", [4096, 16384])
def test_the_table_holds_at_thousands_of_samples(n):
    ks = [1, 2, 64, n // 2, n - 1, n]
    table_CK = pass_at_k_table(n, ks)
    for c in (0, 1, 2, 3, 17, 300, n // 2, n - 96, n - 1, n):
        exact_K = [float(1 - exact_miss(n, c, k)) for k in ks]
        assert table_CK[c].tolist() == pytest.approx(exact_K, rel=1e-13)


def test_no_correct_sample_is_exactly_zero_and_too_few_wrong_ones_exactly_one():
    table_CK = pass_at_k_table(64, [1, 8, 64])
    assert table_CK[0].tolist() == [0.0, 0.0, 0.0]
    assert not np.signbit(table_CK).any()
    assert table_CK[64, 0] == 1.0
    assert (table_CK[57:, 1] == 1.0).all()  # 7 wrong samples cannot fill 8 draws
    assert table_CK[56, 1] < 1.0
    assert (table_CK[1:, 2] == 1.0).all()


def test_columns_follow_the_order_of_ks():
    np.testing.assert_array_equal(pass_at_k_table(9, [4, 2])[:, ::-1], pass_at_k_table(9, [2, 4]))


@pytest.mark.parametrize(("n", "ks"), [(4, [5]), (4, [0]), (4, [1, -1]), (0, [1])])
def test_k_outside_one_to_n_is_refused(n, ks):
    with pytest.raises(ValueError, match="1 <= k <= n"):
        pass_at_k_table(n, ks)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 60), st.data(), st.integers(0, 1000).map(lambda thousandths: thousandths / 1000))
def test_the_estimator_has_no_bias(n, data, p):
    k = data.draw(st.integers(1, n))
    weight_C = binom.pmf(np.arange(n + 1), n, p)
    assert weight_C @ pass_at_k_table(n, [k])[:, 0] == pytest.approx(1 - (1 - p) ** k, abs=1e-10)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 60), st.data(), st.integers(0, 1000).map(lambda thousandths: thousandths / 1000))
def test_the_within_problem_variance_has_no_bias(n, data, p):
    k = data.draw(st.integers(1, n // 2))
    weight_C = binom.pmf(np.arange(n + 1), n, p)
    value_C = pass_at_k_table(n, [k])[:, 0]
    variance = weight_C @ (value_C - weight_C @ value_C) ** 2
    assert weight_C @ within_problem_variance_table(n, [k])[:, 0] == pytest.approx(variance, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("n", [16, 256, 4096, 16384])
def test_the_within_problem_variance_is_the_exact_fraction_without_cancelling(n):
    for k in {1, 4, n // 8, n // 2}:
        variance_C = within_problem_variance_table(n, [k])[:, 0]
        assert (variance_C >= 0.0).all()
        for c in (0, 1, 2, 7, n // 2 - 1, n - 1, n):
            exact = exact_miss(n, c, k) ** 2 - exact_miss(n, c, 2 * k)
            assert variance_C[c] == pytest.approx(float(exact), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize(("n", "ks"), [(4, [3]), (4, [1, 0]), (1, [1]), (0, [1])])
def test_there_is_no_unbiased_variance_beyond_half_the_samples(n, ks):
    with pytest.raises(ValueError, match="k <= n / 2"):
        within_problem_variance_table(n, ks)
