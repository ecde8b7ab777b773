"""Grading in blocks while samples come, and the first look at the base's answers: a store, no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pandas as pd
import pytest

from oversharp.diagnostics.engine.first_look import FirstLook
from oversharp.diagnostics.engine.grading import Grader, grade_responses
from oversharp.diagnostics.records.errors import UnreadableError
from oversharp.diagnostics.records.types import AuditKey, Checkpoint, Grade, Problem, Sample, SamplingSettings, Series
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.missing import find_ungraded
from tests.audit.small_audits import Notes, audit_key

PROBLEMS = [Problem(task="toy", prompt=f"{n} + {n} =", gold=str(2 * n), verifier="exact") for n in range(8)]
SETTINGS = SamplingSettings(sampler="transformers", max_tokens=16)
N = 128
RIGHT, WRONG = "right", "wrong"
#: Names no single answer, and tries to colour a terminal.
UNREAD = "\x1b[31m\n\\boxed{1} or \\boxed{2}"
SHOWN = r"\x1b[31m\n\boxed{1} or \boxed{2}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "audit.duckdb") as opened:
        yield opened


@pytest.fixture
def key(store: Store) -> AuditKey:
    checkpoints = (Checkpoint(step=0, label="base", path=Path("/x"), kind="full", weights_hash="hash0"),)
    store.add_series(Series(name="run", path=Path("/x"), layout="hf", checkpoints=checkpoints))
    store.add_problems(PROBLEMS)
    key = audit_key("run", SETTINGS, n=N, n_base=N)
    ids = [problem.problem_id for problem in PROBLEMS]
    store.begin_audit(key, settings=SETTINGS, panel_settings=SETTINGS, problem_ids=ids)
    return key


def _draw(
    store: Store, problem: Problem, kinds: Sequence[str], *, first: int = 0, cut_off: bool = False
) -> list[Sample]:
    """Committed samples of the base; those of the kind ``WRONG`` name another number, any other is the text itself."""
    texts = {RIGHT: f"Answer: {problem.gold}", WRONG: "Answer: 99"}
    samples = [
        Sample(
            problem_id=problem.problem_id,
            sample_index=index,
            greedy=False,
            text=texts.get(kind, kind),
            token_ids=(5, 1),
            finish_reason="length" if cut_off else "stop",
            logp_sum_raw=-0.5,
        )
        for index, kind in enumerate(kinds, start=first)
    ]
    store.add_samples(SETTINGS.settings_id, "hash0", samples)
    return samples


def _grades(store: Store) -> pd.DataFrame:
    return store.frame("SELECT problem_id, response_id, answer, correct, state FROM grades ORDER BY ALL")


@pytest.mark.slow
def test_graded_while_they_are_drawn_or_afterwards_in_any_blocks_the_grades_are_the_same(
    store: Store, key: AuditKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oversharp.diagnostics.engine.grading.GRADES_PER_COMMIT", 3)
    kinds = [RIGHT, WRONG, "no answer", RIGHT, *map(str, range(6))]
    with Grader(store, key, PROBLEMS) as grader:
        for problem in PROBLEMS:
            grader.take(_draw(store, problem, kinds))
            assert not len(find_ungraded(store, key))  # a full block does not wait
        grader.take(_draw(store, PROBLEMS[0], ["last"], first=len(kinds)))
        assert len(find_ungraded(store, key)) == 1
        grader.finish()
    assert not len(find_ungraded(store, key))
    graded = _grades(store)
    assert len(graded) == len(PROBLEMS) * (len(kinds) - 1) + 1  # the right answer twice
    assert graded["correct"].sum() == len(PROBLEMS) + 3  # "0", "2" and "4" of the problems whose gold they are

    store._database.rows("DELETE FROM grades")  # as if killed before the first block
    grade_responses(store, PROBLEMS, find_ungraded(store, key), key=key, progress=Notes())
    pd.testing.assert_frame_equal(_grades(store), graded)


def test_a_response_that_is_graded_already_is_not_graded_again(
    store: Store, key: AuditKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Grader(store, key, PROBLEMS) as grader:
        grader.take(_draw(store, PROBLEMS[1], [RIGHT, WRONG]))
        grader.finish()
        asked: list[str] = []
        grade = grader._verifiers.grade

        def noted(items: Sequence[tuple[Problem, str]]) -> list[Grade]:
            asked.extend(text for _, text in items)
            return grade(items)

        monkeypatch.setattr(grader._verifiers, "grade", noted)
        grader.take(_draw(store, PROBLEMS[1], [RIGHT, WRONG, "new"], first=2))
        grader.finish()
    assert asked == ["new"]


def test_a_block_of_long_texts_has_few_rows(store: Store, key: AuditKey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oversharp.diagnostics.store.ways.BLOCK_CHARACTERS", 1000)
    monkeypatch.setattr("oversharp.diagnostics.store.ways.FIRST_BLOCK", 2)
    _draw(store, PROBLEMS[0], [f"{n:0500d}" for n in range(10)])
    blocks = list(find_ungraded(store, key).blocks(100))
    assert [len(block) for block in blocks] == [2] * 5
    assert sorted(text for block in blocks for text in block["text"]) == [f"{n:0500d}" for n in range(10)]
    # where a block is nearly full of characters it is graded, however few responses wait
    monkeypatch.setattr("oversharp.diagnostics.engine.grading.BLOCK_CHARACTERS", 1000)
    with Grader(store, key, PROBLEMS) as grader:
        grader.take(_draw(store, PROBLEMS[0], ["x" * 2000], first=10))
        assert len(find_ungraded(store, key)) == 10


def _look(store: Store, key: AuditKey, *, strict: bool = False) -> tuple[FirstLook, Notes]:
    said = Notes()
    look = FirstLook(
        store, key, label="base", max_tokens=16, n_problems=len(PROBLEMS), is_strict=strict, note=said.note
    )  # fmt: skip
    return look, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "cut_off", "said"),
    [
        (
            [RIGHT] * 96 + [WRONG] * 32,
            False,
            "base: pass@1 so far .75; 512 of 512 responses to 4 problems have a parsed answer",
        ),
        (
            [WRONG] * N,
            False,
            "base: pass@1 so far .00; 512 of 512 responses to 4 problems have a parsed answer; first response: "
            "'Answer: 99'",
        ),
        (
            [UNREAD] * N,
            False,
            "base: pass@1 so far .00; 0 of 512 responses to 4 problems have a parsed answer; first response: "
            f"'{SHOWN}'",
        ),
    ],
)
def test_the_first_look_says_one_line_of_what_was_read(
    store: Store, key: AuditKey, kinds: list[str], cut_off: bool, said: str
) -> None:
    look, notes = _look(store, key)
    for problem in PROBLEMS[:4]:
        _draw(store, problem, kinds, cut_off=cut_off)
    grade_responses(store, PROBLEMS, find_ungraded(store, key), key=key, progress=Notes())
    look.take()
    look.take()
    assert notes.notes == [said]
    assert not look.settled  # four problems may be the hard ones


@pytest.mark.slow
def test_what_is_odd_once_enough_problems_were_seen_is_a_warning_that_names_the_mend(
    store: Store, key: AuditKey
) -> None:
    look, notes = _look(store, key)
    for problem in PROBLEMS:
        _draw(store, problem, [UNREAD] * 100 + [RIGHT] * 28, cut_off=True)
    grade_responses(store, PROBLEMS, find_ungraded(store, key), key=key, progress=Notes())
    look.take()
    (said,) = notes.notes
    assert said.startswith(
        "warning: base: pass@1 so far .22; 224 of 1,024 responses to 8 problems have a parsed answer, 1,024 are "
        "truncated at 16 tokens; first response: "
        f"'{SHOWN}'; "
    )
    assert "--max-tokens" in said
    assert look.settled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "cut_off", "stops"),
    [
        ([UNREAD] * 120 + [RIGHT] * 8, False, True),  # 94 % without an answer
        ([WRONG] * 120 + [RIGHT] * 8, True, True),  # 94 % wrong and cut off
        ([WRONG] * 120 + [RIGHT] * 8, False, False),  # hard problems
        ([RIGHT] * N, True, False),  # a base that rambles on behind its answer
        ([UNREAD] * 100 + [RIGHT] * 28, False, False),  # odd, and something can be said
    ],
)
def test_strict_stops_where_hardly_a_response_can_be_read_and_keeps_what_was_drawn(
    store: Store, key: AuditKey, kinds: list[str], cut_off: bool, stops: bool
) -> None:
    look, _ = _look(store, key, strict=True)
    with Grader(store, key, PROBLEMS, look=look) as grader:
        for problem in PROBLEMS[:-1]:
            grader.take(_draw(store, problem, kinds, cut_off=cut_off))
        last = _draw(store, PROBLEMS[-1], kinds, cut_off=cut_off)
        told = r"--strict: base: pass@1 so far .*; fix the prompt .* are kept"
        expected: AbstractContextManager[object] = (
            pytest.raises(UnreadableError, match=told) if stops else nullcontext()
        )
        with expected:
            grader.take(last)
    assert len(store.frame("FROM samples")) == len(PROBLEMS) * N


def test_all_of_a_small_base_is_enough(store: Store, key: AuditKey) -> None:
    look, notes = _look(store, key, strict=True)
    _draw(store, PROBLEMS[0], [UNREAD] * 4)
    grade_responses(store, PROBLEMS, find_ungraded(store, key), key=key, progress=Notes())
    look.take()
    assert len(notes.notes) == 1
    with pytest.raises(UnreadableError, match="0 of 4 responses to 1 problem have a parsed answer;"):
        look.take(is_last=True)
