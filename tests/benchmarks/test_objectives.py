from __future__ import annotations

import numpy as np
import pytest

from benchmarks.frontier.positions import summary
from benchmarks.objectives.pages import table_markdown
from benchmarks.objectives.palindromes import SETTINGS, build_tokenizer, modes_of
from benchmarks.objectives.runs import COLUMNS, Outcome, at_level, outcome, table_rows
from benchmarks.objectives.settings import TABLES, folder_name
from oversharp.trainers import objectives


def flat(value: float) -> Outcome:
    return Outcome(**dict.fromkeys(COLUMNS, value))


def test_values_at_a_level_lie_on_the_line_between_the_checkpoints_around_it() -> None:
    course = {0: flat(0.2), 20: flat(0.6), 40: flat(0.3)}
    found = at_level(course, 0.5)
    assert found is not None
    assert found.pass_at_128 == pytest.approx(0.5)
    assert at_level(course, 0.7) is None


def test_an_interval_over_seeds_needs_two_of_them() -> None:
    three = summary([1.0, 2.0, 3.0])
    assert (three.mean, three.n) == (2.0, 3)
    assert three.high == pytest.approx(2 + 4.302653 / np.sqrt(3), abs=1e-5)
    assert summary([1.0]).low is None


def test_interference_weighs_answers_by_their_base_probability() -> None:
    base = np.log(np.array([0.3, 0.1, 0.5]))
    later = base + np.array([-1.0, 3.0, 0.5])
    found = outcome(later, base, [2, 1])
    assert found.interference_nats == pytest.approx((0.75 * -1.0 + 0.25 * 3.0 + 0.5) / 2)


def test_a_row_says_how_many_seeds_reached_the_level() -> None:
    setting = TABLES["main"][0]
    courses = [{0: flat(0.2), 160: flat(0.6)}, {0: flat(0.2), 160: flat(0.3)}]
    row = table_rows(setting, courses, 0.4)
    assert row["seeds_that_reach_it"] == 1
    assert "(1 of 2 seeds)" in table_markdown([row], 2)[-1]


def test_every_compared_objective_can_be_made_and_has_a_folder_of_its_own() -> None:
    settings = {setting for table in TABLES.values() for setting in table} | set(SETTINGS)
    written = {objectives.parse(setting.algorithm).expression for setting in settings}
    assert len({folder_name(one) for one in TABLES["alpha"]}) == len(TABLES["alpha"])
    assert len(written) > 10


def test_palindromes_are_enumerated_and_survive_the_tokenizer() -> None:
    assert modes_of(list("abcabc")) == ["abccba", "acbbca", "baccab", "bcaacb", "cabbac", "cbaabc"]
    assert modes_of(list("aab")) == ["aba"]
    tokenizer = build_tokenizer("letters: ")
    assert len(tokenizer("letters: a, b, a\n")["input_ids"]) == 7
    assert tokenizer.decode(tokenizer("abccba")["input_ids"]) == "abccba"
