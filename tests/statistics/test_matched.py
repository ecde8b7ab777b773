import pytest

from diagnostics.statistics.matched import RunPath, value_at


def test_a_value_between_two_checkpoints_is_interpolated():
    path = RunPath(steps=[0, 20, 40], x=[0.2, 0.4, 0.6], y=[1.0, 0.9, 0.5])
    found = value_at(path, 0.45)
    assert found.value == pytest.approx(0.8)
    assert found.step == pytest.approx(25)


def test_the_first_passage_counts_when_the_path_turns_back():
    path = RunPath(steps=[0, 10, 20, 30], x=[0.2, 0.6, 0.3, 0.6], y=[1.0, 0.8, 0.4, 0.1])
    assert value_at(path, 0.4).value == pytest.approx(0.9)


def test_the_start_itself_is_on_the_path():
    path = RunPath(steps=[0, 10], x=[0.2, 0.6], y=[1.0, 0.8])
    assert (value_at(path, 0.2).value, value_at(path, 0.2).step) == (1.0, 0.0)
    assert value_at(path, 0.6).value == pytest.approx(0.8)


def test_a_flat_stretch_counts_from_where_it_is_reached():
    path = RunPath(steps=[0, 10, 20], x=[0.2, 0.4, 0.4], y=[1.0, 0.8, 0.3])
    assert value_at(path, 0.4).value == pytest.approx(0.8)


def test_a_falling_path_is_followed_too():
    path = RunPath(steps=[0, 10], x=[0.4, 0.2], y=[1.0, 0.5])
    assert value_at(path, 0.3).value == pytest.approx(0.75)


@pytest.mark.parametrize("x", [0.1, 0.7])
def test_nothing_is_extrapolated(x):
    found = value_at(RunPath(steps=[0, 10], x=[0.2, 0.6], y=[1.0, 0.8]), x)
    assert found.value is None
    assert found.step is None
    assert "0.2 to 0.6" in found.why


def test_unknown_checkpoints_are_skipped():
    path = RunPath(steps=[0, 10, 20], x=[0.2, None, 0.6], y=[1.0, 0.9, 0.8])
    assert value_at(path, 0.4).value == pytest.approx(0.9)
    assert value_at(RunPath(steps=[0], x=[None], y=[1.0]), 0.4).why == "no checkpoint of the run has both values"


def test_paths_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="zip"):
        value_at(RunPath(steps=[0, 10], x=[0.2], y=[1.0]), 0.2)
