import pytest

from diagnostics.statistics.matched import RunPath, value_at


@pytest.mark.parametrize(
    ("x", "y", "at", "value", "step"),
    [
        pytest.param([0.2, 0.4, 0.6], [1.0, 0.9, 0.5], 0.45, 0.8, 12.5, id="between two checkpoints"),
        pytest.param(
            [0.2, 0.6, 0.3, 0.6], [1.0, 0.8, 0.4, 0.1], 0.4, 0.9, 5.0, id="the first passage of a path that turns"
        ),
        pytest.param([0.2, 0.6], [1.0, 0.8], 0.2, 1.0, 0.0, id="at the start"),
        pytest.param([0.2, 0.6], [1.0, 0.8], 0.6, 0.8, 10.0, id="at the end"),
        pytest.param([0.2, 0.4, 0.4], [1.0, 0.8, 0.3], 0.4, 0.8, 10.0, id="where a flat stretch is reached"),
        pytest.param([0.4, 0.2], [1.0, 0.5], 0.3, 0.75, 5.0, id="on a falling path"),
        pytest.param([0.2, None, 0.6], [1.0, 0.9, 0.8], 0.4, 0.9, 10.0, id="over an unknown checkpoint"),
    ],
)
def test_a_value_is_read_off_the_path_where_it_first_passes(x, y, at, value, step):
    found = value_at(RunPath(steps=range(0, 10 * len(x), 10), x=x, y=y), at)
    assert (found.value, found.step) == (pytest.approx(value), pytest.approx(step))


@pytest.mark.parametrize("x", [0.1, 0.7])
def test_nothing_is_extrapolated(x):
    found = value_at(RunPath(steps=[0, 10], x=[0.2, 0.6], y=[1.0, 0.8]), x)
    assert (found.value, found.step) == (None, None)
    assert "0.2 to 0.6" in found.why


def test_a_path_of_unknown_values_says_so():
    assert value_at(RunPath(steps=[0], x=[None], y=[1.0]), 0.4).why == "no checkpoint of the run has both values"


def test_paths_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="zip"):
        value_at(RunPath(steps=[0, 10], x=[0.2], y=[1.0]), 0.2)
