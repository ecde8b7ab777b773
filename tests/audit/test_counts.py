"""The verdict from a real store: which samples count, which problems show modes, and what is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from diagnostics.audit.counts import judge, read_counts
from diagnostics.audit.measure import conclude
from diagnostics.records.errors import StoreError
from diagnostics.records.progress import SilentProgress
from diagnostics.records.types import AuditKey, Checkpoint, Problem, SamplingSettings, Series
from diagnostics.store import Store
from diagnostics.verdict.decide import SeriesCounts
from oversharp import open_store
from tests.audit.small_audits import audit_key

SETTINGS = SamplingSettings(sampler="transformers", max_tokens=4)
#: (problem, step) → responses in the order of their index: A, B, … are correct modes, a and b correct without a mode,
#: "." is wrong, "!" wrong and cut off, "?" unreadable, "~" out of the grader's time.
Responses = Mapping[tuple[int, int], str]
STATES = {"?": "parse_fail", "~": "timeout"}


def _problems(n_problems: int, tasks: Sequence[str]) -> list[Problem]:
    return [
        Problem(task=tasks[i % len(tasks)], prompt=f"{i:05d} =", gold=f"{i}", verifier=f"grader-{i % len(tasks)}")
        for i in range(n_problems)
    ]


def plant(
    store: Store,
    responses: Responses,
    *,
    n: int,
    n_base: int | None = None,
    same_weights: Mapping[int, int] | None = None,
    tasks: Sequence[str] = ("toy",),
    planned: Mapping[tuple[int, int], int] | None = None,
) -> AuditKey:
    """An audit whose samples are ``responses``; ``planned`` are the allocations of an adaptive one.

    ``same_weights`` maps a step to the one whose weights and samples it shares.
    """
    n_problems = 1 + max(problem for problem, _ in responses)
    steps = sorted({step for _, step in responses})
    problems = _problems(n_problems, tasks)
    checkpoints = [
        Checkpoint(step=step, label=f"checkpoint-{step}", path=Path("/x"), kind="full", weights_hash=f"hash{weights}")
        for step, weights in [*zip(steps, steps, strict=True), *(same_weights or {}).items()]
    ]
    store.add_series(Series(name="run", path=Path("/x"), layout="hf", checkpoints=tuple(checkpoints)))
    store.add_problems(problems)
    key = audit_key("run", SETTINGS, n=n, n_base=n_base or n)
    ids = [problem.problem_id for problem in problems]
    store.begin_audit(key, settings=SETTINGS, panel_settings=SETTINGS, problem_ids=ids)
    rows = pd.DataFrame(
        [
            (f"hash{step}", ids[problem], index, letter)
            for (problem, step), letters in responses.items()
            for index, letter in enumerate(letters)
        ],
        columns=["checkpoint_id", "problem_id", "sample_index", "letter"],
    )
    grades = rows[["problem_id", "letter"]].drop_duplicates()
    grades = grades.merge(pd.DataFrame({"problem_id": ids, "verifier": [one.verifier for one in problems]}))
    grades["mode"] = [letter if letter.isupper() else None for letter in grades["letter"]]
    grades["state"] = [STATES.get(letter, "ok") for letter in grades["letter"]]
    database = store._database
    with database.transaction():
        database.insert(
            """
            INSERT INTO samples
            SELECT checkpoint_id, problem_id, $settings_id, false, sample_index, letter, letter, NULL, 3,
                   CASE letter WHEN '!' THEN 'length' ELSE 'stop' END, -1.0, NULL
            """,
            rows,
            settings_id=SETTINGS.settings_id,
        )
        database.insert(
            """
            INSERT INTO grades
            SELECT problem_id, letter, verifier, letter, mode::VARCHAR, 0.0, letter SIMILAR TO '[A-Za-z]', state, ''
            """,
            grades,
        )
        for (problem, step), n_planned in (planned or {}).items():
            database.rows("INSERT INTO allocations VALUES ('run', ?, ?, ?)", [f"hash{step}", ids[problem], n_planned])
    return key


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "audit.duckdb") as opened:
        yield opened


@pytest.fixture
def read(store: Store) -> Callable[..., SeriesCounts]:
    """The counts of a planted audit; arrays are in the order of the problems' ids, which ``problem`` finds."""

    def make(responses: Responses, **choices: object) -> SeriesCounts:
        return read_counts(store, plant(store, responses, **choices), {}, {})

    return make


def _position(problem: int, n_problems: int) -> int:
    ids = [one.problem_id for one in _problems(n_problems, ("toy",))]
    return sorted(ids).index(ids[problem])


def test_the_dominant_mode_is_chosen_on_one_half_of_the_base_and_counted_on_the_other(read: Callable) -> None:
    counts = read({(0, 0): "AAB." + "BBA.", (0, 20): "ABBC", (0, 40): "aAA."}, n=4, n_base=8)
    assert counts.shows_modes_P.tolist() == [True]
    assert counts.base.correct_P.tolist() == [6]
    assert counts.base.minority_P.tolist() == [2]  # B B of the second half: A leads the first, though B leads both
    assert [one.minority_P.tolist() for one in counts.trained] == [[3], [0]]  # a has no mode, so no other mode either
    assert [one.correct_P.tolist() for one in counts.trained] == [[4], [3]]


def test_a_tie_for_the_dominant_mode_is_settled_by_its_name(read: Callable) -> None:
    counts = read({(0, 0): "BA" + "AB", (0, 20): "AAAB"}, n=4)
    assert counts.trained[0].minority_P.tolist() == [1]


def test_problems_without_a_mode_in_the_first_half_have_no_minority(read: Callable) -> None:
    counts = read({(0, 0): "..AB", (0, 20): "ABAB", (1, 0): "aa..", (1, 20): "aaaa"}, n=4)
    assert counts.shows_modes_P.tolist() == [False, False]
    assert counts.trained[0].minority_P.tolist() == [0, 0]


def test_the_base_counts_with_all_of_its_samples(read: Callable) -> None:
    counts = read({(0, 0): "A.......", (0, 20): "AA.."}, n=4, n_base=8)
    assert (counts.base.n, counts.trained[0].n) == (8, 4)
    assert counts.base.correct_P.tolist() == [1]


def test_an_adaptive_audit_counts_as_many_samples_of_every_problem(read: Callable) -> None:
    decided, open_ = _position(0, 2), _position(1, 2)
    counts = read(
        {(0, 0): "........", (0, 20): "..A", (1, 0): "AB......", (1, 20): "B..AAAAA"},
        n=8,
        planned={(0, 20): 3, (1, 20): 8},
    )
    (late,) = counts.trained
    assert (late.n, late.n_most, late.why) == (3, 8, None)
    assert late.correct_P[[decided, open_]].tolist() == [1, 1]
    assert late.minority_P[[decided, open_]].tolist() == [0, 1]


def test_rates_are_shares_of_the_samples_that_count(read: Callable) -> None:
    counts = read({(0, 0): "A..!", (0, 20): "!!?~", (1, 0): "A...", (1, 20): "!..."}, n=4)
    base, late = counts.base.rates, counts.trained[0].rates
    assert (base.truncated, base.not_parsed, base.timed_out) == (1 / 8, 0, 0)
    assert (late.truncated, late.not_parsed, late.timed_out) == (3 / 8, 1 / 8, 1 / 8)
    assert (late.step, late.checkpoint) == (20, "checkpoint-20")
    assert counts.tokens_per_sample == 3


def test_checkpoints_with_missing_samples_say_so(read: Callable) -> None:
    counts = read({(0, 0): "A...", (1, 0): "A...", (0, 20): "A...", (1, 20): "A..", (0, 40): "A..."}, n=4)
    assert counts.base.why is None
    assert [one.why for one in counts.trained] == ["1 of 2 problems lack samples"] * 2
    assert counts.trained[1].rates is not None


def test_weights_that_come_again_are_no_evidence_a_second_time(read: Callable) -> None:
    responses = {(problem, step): "A." for problem in range(3) for step in (0, 1)}
    counts = read(responses, n=2, same_weights={2: 0, 3: 1})
    assert counts.base.why is None
    assert [one.why for one in counts.trained] == [
        None,
        "the same weights as checkpoint-0, whose samples it shares",
        "the same weights as checkpoint-1, whose samples it shares",
    ]
    assert [one.correct_P.tolist() for one in (counts.base, *counts.trained)] == [[1, 1, 1]] * 4


def test_greedy_responses_do_not_count(store: Store) -> None:
    key = plant(store, {(0, 0): "A...", (0, 20): "...."}, n=4)
    store._database.rows("INSERT INTO samples SELECT * REPLACE (true AS greedy) FROM samples WHERE sample_index = 0")
    assert read_counts(store, key, {}, {}).base.correct_P.tolist() == [1]
    assert read_counts(store, key, {}, {}).base.why is None


def test_tasks_and_graders_are_named(read: Callable) -> None:
    letters = {(problem, step): "A..." for problem in range(4) for step in (0, 20)}
    counts = read(letters, n=4, tasks=("math", "aime"))
    assert counts.tasks == ("aime", "math")
    assert counts.graders == ("grader-0", "grader-1")


def _mixed(letters: str, *of: int) -> str:
    """Each half of the letters in an order that ``of`` decides: independent samples do not come in blocks."""
    rng, middle = np.random.default_rng(of), len(letters) // 2
    return "".join("".join(rng.permutation(list(half))) for half in (letters[:middle], letters[middle:]))


def _lost(n_problems: int, n: int) -> Responses:
    """Half of the problems are lost, the others always solved from step 20 on."""
    base = {(problem, 0): _mixed(("AB......" * n)[:n], problem) for problem in range(n_problems)}
    late = {(problem, step): ("A" if problem % 2 else ".") * n for problem in range(n_problems) for step in (20, 40)}
    return {**base, **late}


def test_a_planted_loss_is_judged_kept_and_read_back(store: Store) -> None:
    key = plant(store, _lost(40, 64), n=64)
    verdict = conclude(store, key, {}, {}, SilentProgress())
    assert verdict.label == "over_sharpened"
    assert verdict.graders == ("grader-0",)
    assert store.verdict("run") == verdict
    (row,) = store.frame("SELECT * EXCLUDE (document) FROM verdicts").itertuples(index=False)
    assert row.series == "run"
    assert all(getattr(row, name) == getattr(verdict, name) for name in row._fields)
    path = store.path
    store.close()
    with open_store(path) as reader:
        assert reader.verdict("run") == verdict
        with pytest.raises(StoreError, match=r"no audit of series 'ran'; it holds: run"):
            reader.verdict("ran")


def test_the_clean_twin_of_a_planted_loss_is_no_loss(store: Store) -> None:
    letters = _lost(120, 64)
    kept = {(problem, step): _mixed(letters[problem, 0], problem, step) for problem, step in letters}
    verdict = judge(store, plant(store, kept, n=64))
    assert (verdict.label, verdict.modes_collapsed, verdict.n_minority_problems) == ("no_loss", False, 120)


def test_the_same_verdict_again_leaves_the_file_as_it_was(store: Store) -> None:
    key = plant(store, _lost(8, 16), n=16)
    first = conclude(store, key, {}, {}, SilentProgress())
    store.close()
    before = store.path.read_bytes()
    with Store.open(store.path) as again:
        assert conclude(again, key, {}, {}, SilentProgress()) == first
    assert store.path.read_bytes() == before
    with Store.open(store.path) as again:
        assert again.frame("SELECT count(*) AS n FROM events WHERE stage = 'verdict'")["n"].iloc[0] == 1
        again._database.rows("UPDATE grades SET correct = true")
        other = conclude(again, key, {}, {}, SilentProgress())
        assert other != first
        assert again.verdict("run") == other
        assert len(again.frame("FROM verdicts")) == 1


def test_failed_and_skipped_checkpoints_are_left_out_by_name(store: Store) -> None:
    key = plant(store, {**_lost(40, 64), **{(problem, 60): "A" * 64 for problem in range(40)}}, n=64)
    verdict = judge(store, key, {"hash60": "its tokenizer differs"}, {"checkpoint-80": "cut short"})
    assert verdict.window == (40,)
    left_out = [caveat for caveat in verdict.caveats if caveat.startswith("Left out")]
    assert left_out == ["Left out: checkpoint-80 (cut short).", "Left out: checkpoint-60 (its tokenizer differs)."]


@pytest.mark.parametrize("n", [1, 2])
def test_a_single_problem_with_hardly_a_sample_has_a_verdict(store: Store, n: int) -> None:
    verdict = judge(store, plant(store, {(0, 0): "A" * n, (0, 20): "." * n}, n=n))
    assert (verdict.label, verdict.k_most) == ("inconclusive", 1)


@pytest.mark.parametrize(
    ("responses", "same_weights", "why"),
    [
        ({(0, 0): "AB.."}, {}, "the series has no checkpoint after the base"),
        ({(0, 0): "AB.."}, {1: 0, 2: 0}, "the same weights as checkpoint-0"),
        ({(0, 0): "", (0, 20): ""}, {}, "checkpoint-0"),
    ],
    ids=["the base alone", "never left the base", "without samples"],
)
def test_without_anything_to_compare_there_is_no_verdict(
    store: Store, responses: Responses, same_weights: dict[int, int], why: str
) -> None:
    verdict = judge(store, plant(store, responses, n=4, same_weights=same_weights))
    assert verdict.label == "no_verdict"
    assert why in verdict.sentence
