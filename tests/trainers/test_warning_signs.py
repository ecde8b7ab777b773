"""Early warnings: planted collapses warn once, their clean twins never."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.trainers.run.directory import MetricsLog
from oversharp.trainers.warning_signs import (
    NOTHING_CORRECT,
    WATCHED,
    WINDOW_STEPS,
    first_steps_note,
    group_variety,
    new_signs,
    step_variety,
    warning_signs,
)


def history(values: list[float | None], name: str = "token_entropy_nats") -> list[dict[str, float]]:
    return [{"step": step, **({} if value is None else {name: value})} for step, value in enumerate(values, start=1)]


def falling(to: float, n_steps: int = 100) -> list[float | None]:
    """Return 1 for 20 steps, then a linear decrease to ``to``."""
    slope = (1 - to) / (n_steps - WINDOW_STEPS)
    return [1.0] * WINDOW_STEPS + [1 - slope * step for step in range(1, n_steps - WINDOW_STEPS + 1)]


@pytest.mark.parametrize("kind", ["token_entropy", "correct_variety"])
def test_a_planted_collapse_warns_once_at_the_first_possible_step(kind: str) -> None:
    planted = history(falling(to=0.0), WATCHED[kind][0])
    signs = [sign for end in range(1, len(planted) + 1) for sign in new_signs(planted[:end])]
    # the mean over 20 steps of 1 − n/80 is below a half once the last n reaches 50: (31 + 50) / 2 / 80 > 0.5
    assert [(sign.kind, sign.step) for sign in signs] == [(kind, 70)]
    assert signs[0].last_mean == pytest.approx(1 - 40.5 / 80)


def test_doubled_entropy_warns_once_and_doubled_variety_does_not() -> None:
    rising = [1.0] * WINDOW_STEPS + [1 + step / 20 for step in range(1, 81)]
    planted = history(rising)
    signs = [sign for end in range(1, len(planted) + 1) for sign in new_signs(planted[:end])]
    # the mean over 20 steps of 1 + n/20 is above two once the last n reaches 30: (11 + 30) / 2 / 20 > 1
    assert [(sign.kind, sign.step) for sign in signs] == [("token_entropy_rise", 50)]
    assert "rose to 202 % of its start" in signs[0].text
    assert "+importance" in signs[0].text
    assert warning_signs(history(rising, "correct_variety")) == ()


@pytest.mark.parametrize(
    "values",
    [
        falling(to=0.6),
        [1.0] * 20 + [2.0] * 60,
        [0.0] * 20 + [1.0] * 60,
        [1.0] * 20 + [0.5] * 60,
        [1.0] * 20 + [0.0] * 19,
        [1.0] * 50 + [0.0] + [1.0] * 50,
        [0.0] * 80,
    ],
    ids=[
        "a fall to six tenths",
        "exactly twice",
        "from nothing",
        "exactly half",
        "a run too short",
        "one low step",
        "zero from the start",
    ],
)
def test_without_a_collapse_there_is_no_warning(values: list[float | None]) -> None:
    assert warning_signs(history(values)) == ()


def test_steps_without_the_metric_are_skipped() -> None:
    gaps: list[float | None] = [None, *[1.0] * 20, None, *[0.1] * 20]
    assert [sign.step for sign in warning_signs(history(gaps))] == [42]


def test_a_resumed_run_does_not_warn_again(tmp_path: Path) -> None:
    planted = history(falling(to=0.0))
    lines = [json.dumps(point) for point in planted]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 101, "tok', encoding="utf-8")
    log = MetricsLog(tmp_path, after_step=80)
    assert log.history == planted[:80]
    log.append(planted[80])
    assert new_signs(log.history) == ()


def test_variety_of_known_groups() -> None:
    # two texts 2 : 1 → entropy ln 3 − 2/3 ln 2; two of three pairs differ. A single correct response has no pair
    variety = group_variety([["a", "a", "b"], ["c"], []])
    assert variety.effective_correct_responses == pytest.approx((3 / 2 ** (2 / 3) + 1) / 2)
    assert variety.correct_variety == pytest.approx(2 / 3)
    assert group_variety([["a"] * 8]).metrics == {"effective_correct_responses": 1.0, "correct_variety": 0.0}
    assert group_variety([[], []]).metrics == {}


def test_rollouts_are_grouped_by_prompt_before_they_are_compared() -> None:
    """Two texts, both in each group, or one per group."""
    assert step_variety(["a", "b", "a", "b"], [True] * 4, 2).correct_variety == 1.0
    assert step_variety(["a", "a", "b", "b"], [True] * 4, 2).correct_variety == 0.0
    assert step_variety(["a", "b", "a", "b"], [True, False, True, False], 2).metrics == {
        "effective_correct_responses": 1.0
    }


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=12))
def test_variety_is_within_its_range(texts: list[str]) -> None:
    variety = group_variety([texts])
    assert 0 <= variety.metrics["correct_variety"] <= 1
    assert 1 - 1e-12 <= variety.metrics["effective_correct_responses"] <= len(set(texts)) + 1e-12


def test_variety_does_not_depend_on_the_number_of_correct_responses() -> None:
    """Two equally likely modes: for any number of correct responses, two of them differ with probability 1/2."""
    of_two, of_six = (
        group_variety([[("ab")[bits >> place & 1] for place in range(n)] for bits in range(2**n)]) for n in (2, 6)
    )
    assert of_two.correct_variety == of_six.correct_variety == pytest.approx(0.5)
    assert of_two.effective_correct_responses == pytest.approx(1.5)
    assert of_six.metrics["effective_correct_responses"] > 1.8


def test_first_steps_without_a_correct_rate_do_not_warn() -> None:
    points = [{"step": step, "correct_rate": 0.0} for step in (1, 2, 3)]
    assert first_steps_note(points) == NOTHING_CORRECT
    assert first_steps_note([{"step": 1}, *points[1:]]) is None
    assert first_steps_note([{**point, "step": point["step"] + 100} for point in points]) is None
