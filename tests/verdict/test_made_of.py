"""Sentence on the parts of a change: the significant ones, and the sum of the others."""

from __future__ import annotations

import pytest

from oversharp.diagnostics.measures.coverage.budget.change_budget import PARTS
from oversharp.diagnostics.verdict.record import Verdict, VerdictLabel
from oversharp.diagnostics.verdict.results import Estimate
from oversharp.diagnostics.verdict.words.made_of import PARTS_IN_WORDS, is_fall_shown, is_sure, made_of_text

LOST = Estimate(value=-0.02, low=-0.03, high=-0.0101)
SHARPER = Estimate(value=-0.08, low=-0.1, high=-0.06)
REST = Estimate(value=-0.01, low=-0.04, high=0.02)
WHOLE = Estimate(value=-0.11, low=-0.15, high=-0.07)


def test_every_part_of_the_measure_has_its_words() -> None:
    assert tuple(PARTS_IN_WORDS) == PARTS


def test_sure_parts_come_by_size_and_the_rest_is_summed_up() -> None:
    parts = {"lost": LOST, "sharpening": SHARPER, "unexplained": REST}
    assert made_of_text(WHOLE, parts, k=64, place="step 100") == (
        "pass@64 changed by −11.0 points from the base to step 100: −8.0 [−10.0, −6.0] by sharpening (a lower "
        "temperature of the base has the same effect) and −2.0 by lost problems (now solved no more often than by "
        "false accepts). The other parts, each of which may be 0, sum to −1.0."
    )


def test_a_part_that_is_not_known_to_a_tenth_of_the_change_stands_with_its_interval() -> None:
    near, far = (Estimate(value=-0.1, low=-0.1 - reach, high=-0.1 + reach) for reach in (0.0095, 0.0105))
    whole = Estimate(value=-0.1, low=-0.12, high=-0.08)
    told = [made_of_text(whole, {"lost": one}, k=1, place="step 2") for one in (near, far)]
    assert ["step 2: −10.0 by" in told[0], "step 2: −10.0 [−11.1, −8.9] by" in told[1]] == [True, True]


def test_a_rest_that_would_be_printed_as_nothing_is_not_told() -> None:
    whole = Estimate(value=-0.0204, low=-0.03, high=-0.01)
    assert made_of_text(whole, {"lost": LOST}, k=1, place="step 2").endswith("no more often than by false accepts).")


def test_where_nothing_is_sure_nothing_is_said() -> None:
    assert made_of_text(REST, {"unexplained": REST}, k=1, place="step 2") == ""
    assert made_of_text(WHOLE, {"unexplained": REST}, k=1, place="step 2").endswith(
        "No single part differs significantly from 0."
    )


def test_a_part_without_an_interval_is_not_sure() -> None:
    assert not is_sure(Estimate(value=-0.5, low=None, high=None))


def test_a_part_is_sure_where_its_interval_would_leave_out_0_a_quarter_wider_too() -> None:
    assert [is_sure(Estimate(value=0.05, low=0.05 - reach, high=0.06)) for reach in (0.039, 0.041)] == [True, False]
    assert [is_sure(Estimate(value=-0.05, low=-0.06, high=reach - 0.05)) for reach in (0.039, 0.041)] == [True, False]
    assert not is_sure(Estimate(value=0.0, low=0.0, high=0.0))


def test_a_fall_that_is_shown_is_not_called_luck_without_a_word_on_their_sum() -> None:
    rare = {"guesses": Estimate(value=-0.08, low=-0.1, high=-0.06), "unexplained": REST}
    told = made_of_text(WHOLE, rare, k=64, place="step 100", fall_is_shown=True)
    assert "by rarely solved problems (every accepted answer to them may be a false accept)" in told
    assert told.endswith("The verdict tests all problems together: chance does not explain the sum of their changes.")
    assert "together" not in made_of_text(WHOLE, rare, k=64, place="step 100")
    assert "together" not in made_of_text(WHOLE, {"lost": LOST}, k=64, place="step 100", fall_is_shown=True)


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("over_sharpened", True),
        ("over_sharpened_here", True),
        ("degraded", True),
        ("guessing", False),
        ("format", False),
        ("inconclusive", False),
        ("lost_at_steps", False),
    ],
)
def test_only_labels_of_a_fall_that_nothing_else_explains_show_one(label: VerdictLabel, shown: bool) -> None:
    assert is_fall_shown(Verdict(series="run", label=label, sentence="")) == shown
    assert not is_fall_shown(None)
