"""The verdict from a real store: the samples that count, problems with modes, and left-out checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oversharp import open_store
from oversharp.diagnostics.audit.counts.series import judge, read_counts
from oversharp.diagnostics.audit.measure import conclude
from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import (
    AuditKey,
    Checkpoint,
    Problem,
    SamplingSettings,
    Series,
    VerdictTerms,
)
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import stored_key
from oversharp.diagnostics.verdict.counts import GuessRate, Looks, SeriesCounts
from oversharp.diagnostics.verdict.record import Verdict
from tests.audit.small_audits import audit_key

pytestmark = pytest.mark.slow

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
    problems: Sequence[Problem] = (),
    clusters: Sequence[str | None] = (),
    terms: VerdictTerms | None = None,
) -> AuditKey:
    """An audit whose samples are ``responses``; ``planned`` are numbers of samples other than ``n``.

    ``same_weights`` maps a step to the one whose weights and samples it shares; ``clusters`` are those of the problems.
    """
    n_problems = 1 + max(problem for problem, _ in responses)
    steps = sorted({step for _, step in responses})
    problems = problems or _problems(n_problems, tasks)
    checkpoints = [
        Checkpoint(step=step, label=f"checkpoint-{step}", path=Path("/x"), kind="full", weights_hash=f"hash{weights}")
        for step, weights in [*zip(steps, steps, strict=True), *(same_weights or {}).items()]
    ]
    store.add_series(Series(name="run", path=Path("/x"), layout="hf", checkpoints=tuple(checkpoints)))
    store.add_problems(problems)
    key = audit_key("run", SETTINGS, n=n, n_base=n_base or n, terms=terms)
    ids = [problem.problem_id for problem in problems]
    named = {problem_id: name for problem_id, name in zip(ids, clusters, strict=False) if name is not None}
    store.begin_audit(key, settings=SETTINGS, panel_settings=SETTINGS, problem_ids=ids, clusters=named)
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
            SELECT problem_id, letter, verifier, letter, mode::VARCHAR, 0.0, letter SIMILAR TO '[A-Za-z]', state, '',
                   NULL, NULL, NULL, NULL
            """,
            grades,
        )
        for (problem, step), n_planned in (planned or {}).items():
            row = [f"hash{step}", SETTINGS.settings_id, ids[problem], n_planned]
            database.rows("INSERT INTO stops VALUES ('run', ?, ?, ?, ?)", row)
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


def test_with_unequal_numbers_as_many_samples_of_every_problem_count(read: Callable) -> None:
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


@pytest.mark.slow
def test_unread_samples_are_cut_off_or_ungraded_ones_that_are_not_correct(read: Callable, store: Store) -> None:
    counts = read({(0, 0): "A..!", (0, 20): "!!?~"}, n=4)
    assert (counts.base.unread_P.tolist(), counts.trained[0].unread_P.tolist()) == ([1], [4])
    store._database.rows("UPDATE grades SET correct = true WHERE response_id = '!'")  # cut off after its answer
    assert read_counts(store, stored_key(store, "run"), {}, {}).trained[0].unread_P.tolist() == [2]


@pytest.mark.slow
def test_what_is_cut_off_behind_an_answer_in_a_box_was_read(read: Callable, store: Store) -> None:
    read({(0, 0): "A...", (0, 20): "!!?~"}, n=4)
    key = stored_key(store, "run")
    store._database.rows("UPDATE grades SET n_boxed = 0")
    assert read_counts(store, key, {}, {}).trained[0].unread_P.tolist() == [4]
    store._database.rows("UPDATE grades SET n_boxed = 1")  # "?" and "~" too: these boxes nobody could read
    late = read_counts(store, key, {}, {}).trained[0]
    assert (late.unread_P.tolist(), late.rates.truncated, late.rates.not_parsed) == ([2], 0, 1 / 4)
    told = store.frame("SELECT n, n_correct, n_cut, n_unread FROM read_counts WHERE step = 20")
    assert told.to_numpy().tolist() == [[4, 0, 0, 2]]
    store.kept.count(lambda total: SilentProgress().stage("count", total))
    assert store.frame("SELECT n, n_correct, n_cut, n_unread FROM read_counts WHERE step = 20").equals(told)


@pytest.mark.slow
def test_samples_that_tell_neither_their_end_nor_their_grading_leave_unread_unknown(store: Store) -> None:
    key = plant(store, {(0, 0): "A..!", (0, 20): "!!.."}, n=4)
    store._database.rows("UPDATE samples SET finish_reason = NULL WHERE checkpoint_id = 'hash20'")
    assert read_counts(store, key, {}, {}).trained[0].unread_P.tolist() == [0]  # the grader read them
    store._database.rows("UPDATE problems SET verifier = 'recorded:verl'")
    store._database.rows("UPDATE grades SET verifier = 'recorded:verl'")
    counts = read_counts(store, key, {}, {})
    assert counts.base.unread_P.tolist() == [1]
    assert counts.trained[0].unread_P is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clusters", "together"),
    [
        ((), None),
        (("a", "b", "c", "d"), None),
        ((None, "a", None, "b"), None),
        (("a", "b", "a", "b"), [{0, 2}, {1, 3}]),
        ((None, "a", None, "a"), [{0}, {1, 3}, {2}]),
    ],
)
def test_problems_of_one_cluster_share_a_number(
    read: Callable, clusters: Sequence[str | None], together: list[set[int]] | None
) -> None:
    counts = read({(problem, step): "A..." for problem in range(4) for step in (0, 20)}, n=4, clusters=clusters)
    if together is None:
        assert counts.cluster_P is None
        return
    number = {problem: int(counts.cluster_P[_position(problem, 4)]) for problem in range(4)}
    found = [{problem for problem in number if number[problem] == one} for one in sorted(set(number.values()))]
    assert sorted(found, key=min) == together


_SOLD = "A shop sells {} boxes of pencils to {} on Monday and half as many on Tuesday. How many boxes are that?"
_PROMPTS = (
    "Find the area of the largest square that fits into a triangle whose sides are all of length 5.",
    _SOLD.format(2, "Ann"),
    _SOLD.format(31, "Bob"),
    "Find the area of the largest circle that fits into a triangle whose sides are all of length 3.",
    "Two cards are drawn without putting any back from a deck of 52. What is the chance that both are red?",
)


def _asked(verifier: str, gold: str = "4", **fields: object) -> list[Problem]:
    return [Problem(task="t", prompt=prompt, gold=gold, verifier=verifier, **fields) for prompt in _PROMPTS]


@pytest.mark.slow
def test_prompts_that_repeat_another_are_counted_where_no_cluster_is_named(store: Store) -> None:
    letters = {(problem, step): "A..." for problem in range(5) for step in (0, 20)}
    problems = _asked("exact")
    assert read_counts(store, plant(store, letters, n=4, problems=problems), {}, {}).n_near_duplicates == 4
    named = plant(store, letters, n=4, problems=problems, clusters=("a", "b", "b", "a", "c"))
    assert read_counts(store, named, {}, {}).n_near_duplicates == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verifier", "changes", "terms", "rate"),
    [
        ("math", {}, VerdictTerms(), GuessRate(share=0.0011, source="measured")),
        ("math", {"gold": r"\frac{1}{2}"}, VerdictTerms(), GuessRate(share=0.005, source="assumed")),
        ("math", {}, VerdictTerms(guess_rate=0.0), GuessRate(share=0.0, source="given")),
        (
            "expression",
            {"meta": {"numbers": [1, 3]}},
            VerdictTerms(),
            GuessRate(share=0.0, source="the grader checks the whole solution"),
        ),
        ("expression", {}, VerdictTerms(), GuessRate(share=0.005, source="assumed")),
        (
            "modes",
            {"modes": ("4",)},
            VerdictTerms(),
            GuessRate(share=0.0, source="the grader checks the whole solution"),
        ),
        ("grader of nobody", {}, VerdictTerms(), GuessRate(share=0.005, source="assumed")),
    ],
)
def test_the_guess_rate_is_what_was_given_else_what_the_grader_knows_else_assumed(
    store: Store, verifier: str, changes: dict[str, object], terms: VerdictTerms, rate: GuessRate
) -> None:
    letters = {(problem, step): "A..." for problem in range(5) for step in (0, 20)}
    key = plant(store, letters, n=4, problems=_asked(verifier, **changes), terms=terms)
    assert read_counts(store, key, {}, {}).guess_rate == rate
    assert read_counts(store, stored_key(store, "run"), {}, {}).guess_rate == rate  # the store knows it too


def test_of_several_graders_the_largest_guess_rate_counts(store: Store) -> None:
    options = replace(_asked("choice")[0], prompt="Which is warm?\n\nA. red\nB. blue\nC. green\nD. white", gold="A")
    problems = [options, *_asked("math")[1:4], replace(_asked("modes")[4], modes=("4",))]
    letters = {(problem, step): "A..." for problem in range(5) for step in (0, 20)}
    counts = read_counts(store, plant(store, letters, n=4, problems=problems), {}, {})
    assert counts.guess_rate == GuessRate(share=0.25, source="known to the grader")


@pytest.mark.slow
def test_each_set_of_compared_checkpoints_is_one_look(store: Store) -> None:
    def looks(*steps: int, failed: Sequence[str] = ()) -> Looks:
        letters = {(problem, step): _mixed("A.B.", problem, step) for problem in range(3) for step in (0, *steps)}
        for table in ("samples", "grades"):
            store._database.rows(f"DELETE FROM {table}")
        key = plant(store, letters, n=4, terms=VerdictTerms(looks=4, runs=2))
        left_out = dict.fromkeys(failed, "cut short")
        seen = read_counts(store, key, left_out, {}).looks
        conclude(store, key, left_out, {}, SilentProgress())
        return seen

    assert looks(20) == looks(20) == Looks(number=1, declared=4, runs=2)
    assert looks(20, 40) == Looks(number=2, declared=4, runs=2)
    assert looks(20, 40, failed=["hash40"]).number == 1  # the same comparison as at first
    assert looks(20, 40, 60).number == 3
    steps = store.frame("SELECT steps FROM verdict_looks ORDER BY number")["steps"]
    assert [one.tolist() for one in steps] == [[20], [20, 40], [20, 40, 60]]


@pytest.mark.slow
def test_more_samples_or_problems_at_the_same_checkpoints_are_another_look(store: Store) -> None:
    def number(n: int, n_problems: int = 3) -> int:
        letters = {
            (problem, step): _mixed(("A.B." + "A.B" * n)[:n], problem, step)
            for problem in range(n_problems)
            for step in (0, 20)
        }
        for table in ("samples", "grades", "audit_problems", "audits"):
            store._database.rows(f"DELETE FROM {table}")
        key = plant(store, letters, n=n)
        seen = read_counts(store, key, {}, {}).looks.number
        conclude(store, key, {}, {}, SilentProgress())
        return seen

    assert [number(4), number(4), number(8), number(4), number(4, 5)] == [1, 1, 2, 1, 3]


@pytest.mark.slow
def test_a_series_without_a_verdict_was_not_looked_at(store: Store) -> None:
    key = plant(store, {(0, 0): "AB.."}, n=4)
    assert conclude(store, key, {}, {}, SilentProgress()).label == "no_verdict"
    assert store.frame("FROM verdict_looks").empty


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


@pytest.mark.slow
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
    # no number divides all counts: that would be copies
    base = {(problem, 0): _mixed(("AB......" * n)[: n - 3] + "AAB", problem) for problem in range(n_problems)}
    late = {(problem, step): ("A" if problem % 2 else ".") * n for problem in range(n_problems) for step in (20, 40)}
    return {**base, **late}


@pytest.mark.slow
def test_a_planted_loss_is_judged_kept_and_read_back(store: Store) -> None:
    key = plant(store, _lost(40, 64), n=64)
    verdict = conclude(store, key, {}, {}, SilentProgress())
    assert verdict.label == "over_sharpened"
    assert verdict.graders == ("grader-0",)
    assert store.verdict("run") == verdict
    (row,) = store.frame("SELECT * EXCLUDE (document) FROM verdicts").itertuples(index=False)
    assert row.series == "run"
    attributes = {"place": "where", "scope": "scope", "pass_at_1": "pass_at_1", "kind": "kind"}
    assert all(getattr(row, column) == getattr(verdict.attributes, name) for column, name in attributes.items())
    assert all(getattr(row, name) == getattr(verdict, name) for name in set(row._fields) - set(attributes))
    path = store.path
    store.close()
    with open_store(path) as reader:
        assert reader.verdict("run") == verdict
        with pytest.raises(StoreError, match=r"has no audit of this series; audited series: run"):
            reader.verdict("ran")


@pytest.mark.slow
def test_the_clean_twin_of_a_planted_loss_is_no_loss(store: Store) -> None:
    letters = _lost(120, 64)
    # independent draws: counts that are equal to the last one in a hundred problems are no sample of anything
    rng = np.random.default_rng(0)
    kept = {key: "".join(rng.choice(list("AB......"), size=64)) for key in letters}
    verdict = judge(store, plant(store, kept, n=64))
    assert (verdict.label, verdict.modes_collapsed, verdict.n_minority_problems) == ("no_loss", False, 120)


@pytest.mark.slow
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


@pytest.mark.slow
def test_failed_and_skipped_checkpoints_are_left_out_by_name(store: Store) -> None:
    key = plant(store, {**_lost(40, 64), **{(problem, 60): "A" * 64 for problem in range(40)}}, n=64)
    verdict = judge(store, key, {"hash60": "its tokenizer differs"}, {"checkpoint-80": "cut short"})
    assert verdict.window == (40,)
    left_out = [caveat for caveat in verdict.caveats if caveat.startswith("Left out")]
    assert left_out == ["Left out: checkpoint-80 (cut short).", "Left out: checkpoint-60 (its tokenizer differs)."]
    told = [(one.checkpoint, one.step, one.why) for one in verdict.left_out]
    assert told == [("checkpoint-80", None, "cut short"), ("checkpoint-60", 60, "its tokenizer differs")]
    assert Verdict.from_json(verdict.to_json()) == verdict


@pytest.mark.parametrize("n", [1, 2])
def test_a_single_problem_with_hardly_a_sample_has_a_verdict(store: Store, n: int) -> None:
    verdict = judge(store, plant(store, {(0, 0): "A" * n, (0, 20): "." * n}, n=n))
    assert (verdict.label, verdict.k_most) == ("inconclusive", 1)


@pytest.mark.slow
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
