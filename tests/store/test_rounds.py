"""Rounds of an audit with a stopping rule, planned from the grades."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import (
    AuditKey,
    Checkpoint,
    Grade,
    Problem,
    Sample,
    SamplingSettings,
    Series,
    response_id,
)
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import stored_key
from oversharp.diagnostics.store.merge import merge
from oversharp.diagnostics.store.missing import find_ungraded
from oversharp.diagnostics.store.plan.samples import planned_samples, samples_to_draw

SETTINGS = SamplingSettings(sampler="transformers", max_tokens=4)
PROBLEMS = [Problem(task="toy", prompt=f"{i} + 1 =", gold="2", verifier="exact") for i in range(8)]
IDS = [problem.problem_id for problem in PROBLEMS]
#: Grade states by letter. Only "A" is correct.
STATES = {"!": "error", "~": "timeout"}
KEY = AuditKey(
    audit_id="a", series="run", settings_id=SETTINGS.settings_id, n=8, n_base=8, first_round=2, enough=1,
    entropy_samples=0, panel=0, panel_settings_id="", kernel_problems=0, kernel_responses=0, ks=(1, 2),
    strategy_regex="```",
)  # fmt: skip


def begin(store: Store, **changes: object) -> AuditKey:
    """Register an audit of checkpoints hash0 (the base) and hash20."""
    key = replace(KEY, **changes)
    checkpoints = tuple(
        Checkpoint(step=step, label=f"checkpoint-{step}", path=Path("/x"), kind="full", weights_hash=f"hash{step}")
        for step in (0, 20)
    )
    store.add_series(Series(name=key.series, path=Path("/x"), layout="hf", checkpoints=checkpoints))
    store.add_problems(PROBLEMS)
    store.begin_audit(key, settings=SETTINGS, panel_settings=None, problem_ids=IDS)
    return key


def draw(store: Store, checkpoint_id: str, letters: Sequence[str], *, first: int = 0, graded: bool = True) -> None:
    """Add the samples of each problem, from index ``first`` on; a space is a missing sample."""
    samples = [
        Sample(
            problem_id=problem_id, sample_index=index, greedy=False, text=letter, token_ids=(5, 1),
            finish_reason="stop", logp_sum_raw=-0.5,
        )
        for problem_id, responses in zip(IDS, letters, strict=False)
        for index, letter in enumerate(responses, start=first)
        if letter != " "
    ]  # fmt: skip
    store.add_samples(SETTINGS.settings_id, checkpoint_id, samples)
    if graded:
        grade(store, {problem_id: set(responses) for problem_id, responses in zip(IDS, letters, strict=False)})


def grade(store: Store, responses: dict[str, set[str]], *, correct: str = "A", verifier: str = "exact") -> None:
    store.add_grades(
        (
            problem_id,
            response_id(letter),
            verifier,
            Grade(answer=letter, mode=None, reward=float(letter in correct), state=STATES.get(letter, "ok")),
        )
        for problem_id, letters in responses.items()
        for letter in sorted(letters - {" "})
    )


def planned(store: Store, key: AuditKey, checkpoint_id: str, n_problems: int) -> list[int]:
    numbers = planned_samples(store, key, checkpoint_id)
    return [numbers[problem_id] for problem_id in IDS[:n_problems]]


def read_solved(store: Store, step: int) -> list[str]:
    query = "SELECT coalesce(solved::VARCHAR, '?') AS s FROM problem_counts WHERE step = $step ORDER BY {}"
    return store.frame(query.format("list_position($ids, problem_id)"), step=step, ids=IDS)["s"].tolist()


def lacking(plan: pd.DataFrame) -> int:
    """The number of pairs of checkpoint and problem that lack samples."""
    return int((plan["n_drawn"] < plan["n"]).sum())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "audit.duckdb") as opened:
        yield opened


def test_before_the_first_samples_every_problem_is_planned_for_the_first_round(store: Store) -> None:
    key = begin(store)
    assert planned(store, key, "hash0", 8) == [2] * 8
    assert lacking(store.plan_rounds(key)) == 16
    assert planned(store, key, "hash20", 8) == [2] * 8
    assert lacking(store.plan_rounds(key, ["hash20"])) == 8
    assert samples_to_draw(store, key) == {"hash0": 24, "hash20": 24}  # 2 samples and the greedy response


@pytest.mark.parametrize(
    ("letters", "n"),
    [
        ("", 2),
        ("B", 2),  # the first round is incomplete
        ("A", 2),
        ("AB", 2),  # solved in the first round
        ("BB", 4),
        ("BBA", 4),  # correct, but its round is incomplete
        ("BBAB", 4),
        ("BBBB", 7),  # the cap is no multiple of the first round
        ("BBBBBBA", 7),
        ("BBBBBBB", 7),
        ("ABAAAAA", 2),  # more samples exist than the rule needs
        ("BBBBBBBA", 7),  # the sample beyond the cap does not count
        ("B ABAAA", 2),  # a sample of the first round is missing
        ("!!", 4),  # a failed grading counts as wrong, as in all counts
        ("~A", 2),
    ],
)
def test_a_problem_is_planned_up_to_the_round_that_solves_it_or_to_the_next(store: Store, letters: str, n: int) -> None:
    key = begin(store, n=7)
    draw(store, "hash20", [letters])
    store.plan_rounds(key)
    assert planned(store, key, "hash20", 2) == [n, 2]
    assert planned(store, key, "hash0", 2) == [2, 2]  # the other checkpoint has no effect


def test_ungraded_samples_stop_no_problem_and_open_no_round(store: Store) -> None:
    key = begin(store)
    draw(store, "hash20", ["AA", "BB", "BB"], graded=False)
    grade(store, {IDS[2]: {"B"}})
    assert (
        lacking(store.plan_rounds(key, ["hash20"])) == 6
    )  # five problems have no samples, and the third needs two more
    assert planned(store, key, "hash20", 3) == [2, 2, 4]
    grade(store, {IDS[0]: {"A"}, IDS[1]: {"B"}})
    assert lacking(store.plan_rounds(key, ["hash20"])) == 7
    assert planned(store, key, "hash20", 3) == [2, 4, 4]


def test_greedy_responses_and_samples_under_other_settings_do_not_count(store: Store) -> None:
    key = begin(store)
    draw(store, "hash20", ["BB"])
    greedy = Sample(
        problem_id=IDS[0], sample_index=0, greedy=True, text="A", token_ids=(5, 1), finish_reason="stop",
        logp_sum_raw=-0.5,
    )  # fmt: skip
    other = replace(SETTINGS, temperature=0.5)
    store.add_settings(other)
    store.add_samples(SETTINGS.settings_id, "hash20", [greedy])
    store.add_samples(other.settings_id, "hash20", [replace(greedy, greedy=False)])
    grade(store, {IDS[0]: {"A"}})
    store.plan_rounds(key)
    assert planned(store, key, "hash20", 1) == [4]


def test_the_base_has_a_separate_cap_and_a_first_round_above_the_cap_is_the_only_one(store: Store) -> None:
    key = begin(store, n=4, n_base=16)
    letters = ["B" * 8, "B" * 8 + "A" * 8, "B" * 16]
    draw(store, "hash0", letters)
    draw(store, "hash20", letters)
    store.plan_rounds(key)
    assert planned(store, key, "hash0", 3) == [16, 16, 16]
    assert planned(store, key, "hash20", 3) == [4, 4, 4]
    caps = store.frame("SELECT DISTINCT is_base, n_cap, n_common FROM planned_samples ORDER BY is_base")
    assert caps.to_numpy().tolist() == [[False, 4, 2], [True, 16, 2]]
    one = begin(store, audit_id="b", n=4, n_base=16, first_round=32)
    assert lacking(store.plan_rounds(one, ["hash20"])) == 5
    assert planned(store, one, "hash20", 3) == [4, 4, 4]
    assert planned(store, one, "hash0", 3) == [16, 16, 16]


def test_the_plan_is_that_of_the_stopping_rule(store: Store) -> None:
    rng = np.random.default_rng(0)
    key = begin(store, n=45, n_base=64, first_round=3, enough=3)
    rule = StoppingRule.doubling(first=3, cap=45, enough=3)
    letters = ["".join("A" if one else "B" for one in rng.random(45) < rate) for rate in np.linspace(0, 1, 8) ** 2]
    draw(store, "hash20", letters)
    store.plan_rounds(key)
    expected = []
    for responses in letters:
        n = rule.rounds[0]
        while (following := rule.next_n(n, responses[:n].count("A"))) is not None:
            n = following
        expected.append(n)
    assert planned(store, key, "hash20", 8) == expected
    assert len(set(expected)) > 3


def test_planning_again_changes_no_row_and_the_order_of_the_samples_has_no_effect(store: Store) -> None:
    key = begin(store)
    draw(store, "hash20", ["BB", "AB", "B"])
    store.plan_rounds(key)
    before = store.frame("SELECT *, rowid FROM stops ORDER BY ALL")
    store.plan_rounds(key)
    pd.testing.assert_frame_equal(store.frame("SELECT *, rowid FROM stops ORDER BY ALL"), before)
    draw(store, "hash20", ["BBAB", "", "BBA"], first=1)
    store.plan_rounds(key)
    assert planned(store, key, "hash20", 3) == [4, 2, 4]


def test_new_grades_shorten_and_lengthen_the_plan(store: Store) -> None:
    key = begin(store)
    draw(store, "hash20", ["BBBB", "A!"])
    store.plan_rounds(key)
    assert planned(store, key, "hash20", 2) == [8, 2]
    store._database.rows("UPDATE grades SET correct = NOT correct")
    store.plan_rounds(key)
    assert planned(store, key, "hash20", 2) == [2, 2]
    store._database.rows("UPDATE grades SET correct = false")
    assert lacking(store.plan_rounds(key, ["hash20"])) == 8
    assert planned(store, key, "hash20", 2) == [8, 4]


def test_counts_use_all_samples_up_to_the_stop_and_comparisons_those_of_the_first_round(store: Store) -> None:
    key = begin(store, n=4)
    draw(store, "hash0", ["AABB", "BBBA"])
    draw(store, "hash20", ["BABB", "BBAA"])
    store.plan_rounds(key)
    columns = "SELECT step, n, n_correct, n_planned, n_cap FROM {} ORDER BY step, n, n_correct"
    assert store.frame(columns.format("sampled_counts")).to_numpy().tolist() == [
        [0, 2, 2, 2, 8], [0, 4, 1, 4, 8], [20, 2, 1, 2, 4], [20, 4, 2, 4, 4],
    ]  # fmt: skip
    of_first_round = [[0, 2, 0, 2, 8], [0, 2, 2, 2, 8], [20, 2, 0, 2, 4], [20, 2, 1, 2, 4]]
    assert store.frame(columns.format("read_counts")).to_numpy().tolist() == of_first_round
    first = store.frame("SELECT step, n, n_planned, sum(n_correct) AS n_correct FROM problem_counts GROUP BY ALL")
    assert sorted(first.to_numpy().tolist()) == [[0, 2, 2, 2], [20, 2, 2, 1]]
    shown = store.frame(
        "SELECT step, count(*) AS n, count(*) FILTER (in_first_round) AS m FROM graded_samples GROUP BY 1"
    )
    assert sorted(shown.to_numpy().tolist()) == [[0, 6, 4], [20, 6, 4]]
    strategies = store.frame("SELECT step, sum(n)::INTEGER AS n FROM strategy_counts GROUP BY step ORDER BY step")
    assert strategies.to_numpy().tolist() == [[0, 4], [20, 4]]


def test_a_problem_is_solved_by_a_sample_up_to_the_smallest_cap(store: Store) -> None:
    key = begin(store, n=4)
    draw(store, "hash0", ["BB", "BBBA", "BBBBA", "BBBB", "BBBBBBBB", "BBB", "BB A"])
    draw(store, "hash20", ["AB", "BBBA", "BBBB", "BB"])
    store.plan_rounds(key)
    assert read_solved(store, 0) == ["?", "true", "false", "false", "false", "?", "true"]
    assert read_solved(store, 20) == ["true", "true", "false", "?"]
    assert store.frame("SELECT DISTINCT n_reach FROM problem_counts")["n_reach"].tolist() == [4]
    begin(store, audit_id="b", n=4, n_base=4, first_round=None, enough=None)
    assert read_solved(store, 0) == ["?", "true", "false", "false", "false", "?", "true"]


@pytest.mark.slow
@pytest.mark.parametrize("first_round", [2, None])
def test_a_kept_or_counted_series_has_the_counts_of_the_views(store: Store, first_round: int | None) -> None:
    key = begin(store, n=4, first_round=first_round, enough=first_round and 1)
    draw(store, "hash0", ["AABB", "BBBA", "BBBBA", "B!~A"])
    draw(store, "hash20", ["BABB", "BBAA", "!~", "BBBB"])
    store.plan_rounds(key)
    views = ("sampled_counts", "problem_counts", "read_counts")
    kept = (*views, "base_responses", "answer_counts")
    before = {view: store.frame(f"FROM {view} ORDER BY ALL") for view in kept}
    assert before["sampled_counts"]["n"].sum() > before["problem_counts"]["n"].sum()
    with store.kept.keep("run"):
        for view in kept:
            pd.testing.assert_frame_equal(store.frame(f"FROM {view} ORDER BY ALL"), before[view], obj=view)
    store.kept.count(lambda total: SilentProgress().stage("count", total))
    for view in views:
        pd.testing.assert_frame_equal(store.frame(f"FROM {view} ORDER BY ALL"), before[view], obj=view)


def test_the_rule_is_stored_and_an_audit_without_one_has_no_stops(store: Store) -> None:
    key = begin(store)
    assert stored_key(store, "run") == key
    uniform = begin(store, audit_id="b", first_round=None, enough=None)
    assert stored_key(store, "run") == uniform
    draw(store, "hash20", ["AA"])
    assert store.plan_rounds(uniform).empty
    assert planned(store, uniform, "hash20", 2) == [8, 8]
    assert store.frame("SELECT DISTINCT n_common FROM planned_samples")["n_common"].tolist() == [8]


def test_another_verifier_has_its_own_stops(store: Store) -> None:
    key = begin(store)
    draw(store, "hash20", ["BBBA", "AB"])
    store.plan_rounds(key)
    second = replace(key, audit_id="b", series="run (math)", verifier="math")
    begin(store, audit_id="b", series="run (math)", verifier="math")
    store.share_plan(key, second)
    assert planned(store, second, "hash20", 2) == [2, 2]
    assert len(find_ungraded(store, second)) == 3  # of the first round: B of both problems, A of the second
    grade(store, {IDS[0]: {"A", "B"}, IDS[1]: {"A", "B"}}, correct="", verifier="math")
    store.plan_rounds(second)
    assert planned(store, second, "hash20", 2) == [8, 4]
    # the audit also draws for the second grades
    assert planned(store, key, "hash20", 2) == [8, 4]
    assert samples_to_draw(store, key)["hash20"] == (8 - 4) + (4 - 2) + 6 * 2 + 8
    # another audit of the series does not
    other = begin(store, audit_id="c", n=4)
    assert planned(store, other, "hash20", 2) == [2, 2]
    begin(store)
    grade(store, {IDS[0]: {"A", "B"}, IDS[1]: {"A", "B"}}, correct="B", verifier="math")
    store._database.rows("UPDATE grades SET correct = response_id = ? WHERE verifier = 'math'", [response_id("B")])
    store.plan_rounds(second)
    assert planned(store, second, "hash20", 2) == [2, 2]
    assert planned(store, key, "hash20", 2) == [4, 2]


def test_a_look_at_the_verdict_does_not_depend_on_the_stops_but_on_the_rule(store: Store) -> None:
    key = begin(store)
    looks = [store.add_look("run", [20], key.terms)]
    draw(store, "hash20", ["BBBB"] * 8)
    store.plan_rounds(key)
    looks.append(store.add_look("run", [20], key.terms))
    begin(store, audit_id="b", enough=2)
    looks.append(store.add_look("run", [20], key.terms))
    begin(store, audit_id="c", n=16)
    looks.append(store.add_look("run", [20], key.terms))
    begin(store, audit_id="d", first_round=None, enough=None)
    looks.append(store.add_look("run", [20], key.terms))
    assert looks == [1, 1, 2, 3, 4]


@pytest.mark.slow
def test_merged_stores_are_planned_from_the_grades_of_both(tmp_path: Path) -> None:
    paths = []
    for name, (problem, letters) in {"one": (0, "BBA"), "two": (1, "BBBB")}.items():
        paths.append(tmp_path / name / "audit.duckdb")
        paths[-1].parent.mkdir()
        with Store.open(paths[-1]) as store:
            key = begin(store)
            draw(store, "hash20", ["BB", "BB"] if problem else ["BBA", ""])
            draw(store, "hash20", ["" if other != problem else letters for other in range(2)])
            store.plan_rounds(key)
            store.end_audit(key, {"command": name})
    merged = merge(paths, tmp_path / "merged")
    with Store.open(merged.store_path) as store:
        assert planned(store, key, "hash20", 2) == [4, 8]
    with Store.open(paths[0]) as store:
        assert planned(store, key, "hash20", 2) == [4, 2]
