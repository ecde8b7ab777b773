"""Grading in blocks during sampling, and the check of the base's first answers, with a store and no model."""

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
#: Has two answers, and terminal control characters.
UNPARSED = "\x1b[31m\n\\boxed{1} or \\boxed{2}"
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
    store: Store, problem: Problem, kinds: Sequence[str], *, first: int = 0, truncated: bool = False
) -> list[Sample]:
    """Return committed samples of the base with a right or wrong answer, or with ``kind`` as the text."""
    texts = {RIGHT: f"Answer: {problem.gold}", WRONG: "Answer: 99"}
    samples = [
        Sample(
            problem_id=problem.problem_id,
            sample_index=index,
            greedy=False,
            text=texts.get(kind, kind),
            token_ids=(5, 1),
            finish_reason="length" if truncated else "stop",
            logp_sum_raw=-0.5,
        )
        for index, kind in enumerate(kinds, start=first)
    ]
    store.add_samples(SETTINGS.settings_id, "hash0", samples)
    return samples


def _grades(store: Store) -> pd.DataFrame:
    return store.frame("SELECT problem_id, response_id, answer, correct, state FROM grades ORDER BY ALL")


@pytest.mark.slow
def test_grades_during_sampling_and_afterwards_are_equal(
    store: Store, key: AuditKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oversharp.diagnostics.engine.grading.GRADES_PER_COMMIT", 3)
    kinds = [RIGHT, WRONG, "no answer", RIGHT, *map(str, range(6))]
    with Grader(store, key, PROBLEMS) as grader:
        for problem in PROBLEMS:
            grader.add(_draw(store, problem, kinds))
            assert not len(find_ungraded(store, key))  # a full block does not wait
        grader.add(_draw(store, PROBLEMS[0], ["last"], first=len(kinds)))
        assert len(find_ungraded(store, key)) == 1
        grader.finish()
    assert not len(find_ungraded(store, key))
    graded = _grades(store)
    assert len(graded) == len(PROBLEMS) * (len(kinds) - 1) + 1  # the right answer twice
    assert graded["correct"].sum() == len(PROBLEMS) + 3  # "0", "2" and "4" of the problems whose gold they are

    store._database.rows("DELETE FROM grades")  # as after a kill before the first block
    grade_responses(store, PROBLEMS, find_ungraded(store, key), key=key, progress=Notes())
    pd.testing.assert_frame_equal(_grades(store), graded)


def test_a_graded_response_is_not_graded_again(store: Store, key: AuditKey, monkeypatch: pytest.MonkeyPatch) -> None:
    with Grader(store, key, PROBLEMS) as grader:
        grader.add(_draw(store, PROBLEMS[1], [RIGHT, WRONG]))
        grader.finish()
        graded: list[str] = []
        grade = grader._verifiers.grade

        def record(items: Sequence[tuple[Problem, str]]) -> list[Grade]:
            graded.extend(text for _, text in items)
            return grade(items)

        monkeypatch.setattr(grader._verifiers, "grade", record)
        grader.add(_draw(store, PROBLEMS[1], [RIGHT, WRONG, "new"], first=2))
        grader.finish()
    assert graded == ["new"]


def test_a_block_of_long_texts_has_few_rows(store: Store, key: AuditKey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oversharp.diagnostics.store.ways.BLOCK_CHARACTERS", 1000)
    monkeypatch.setattr("oversharp.diagnostics.store.ways.FIRST_BLOCK", 2)
    _draw(store, PROBLEMS[0], [f"{n:0500d}" for n in range(10)])
    blocks = list(find_ungraded(store, key).blocks(100))
    assert [len(block) for block in blocks] == [2] * 5
    assert sorted(text for block in blocks for text in block["text"]) == [f"{n:0500d}" for n in range(10)]
    # a block with enough characters is graded, even with few responses
    monkeypatch.setattr("oversharp.diagnostics.engine.grading.BLOCK_CHARACTERS", 1000)
    with Grader(store, key, PROBLEMS) as grader:
        grader.add(_draw(store, PROBLEMS[0], ["x" * 2000], first=10))
        assert len(find_ungraded(store, key)) == 10


def _look(store: Store, key: AuditKey, *, strict: bool = False) -> tuple[FirstLook, Notes]:
    notes = Notes()
    look = FirstLook(
        store, key, label="base", max_tokens=16, n_problems=len(PROBLEMS), is_strict=strict, note=notes.note
    )  # fmt: skip
    return look, notes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "line"),
    [
        (
            [RIGHT] * 96 + [WRONG] * 32,
            "base: pass@1 so far .75; 512 of 512 responses to 4 problems have a parsed answer",
        ),
        (
            [WRONG] * N,
            "base: pass@1 so far .00; 512 of 512 responses to 4 problems have a parsed answer; first response: "
            "'Answer: 99'",
        ),
        (
            [UNPARSED] * N,
            "base: pass@1 so far .00; 0 of 512 responses to 4 problems have a parsed answer; first response: "
            f"'{SHOWN}'",
        ),
    ],
)
def test_the_first_look_prints_one_line(store: Store, key: AuditKey, kinds: list[str], line: str) -> None:
    look, notes = _look(store, key)
    for problem in PROBLEMS[:4]:
        _draw(store, problem, kinds)
    grade_responses(store, PROBLEMS, find_ungraded(store, key), key=key, progress=Notes())
    look.check()
    look.check()
    assert notes.notes == [line]
    assert not look.is_final  # four problems may be hard ones


@pytest.mark.slow
def test_unusual_rates_on_enough_problems_are_a_warning_with_a_hint(store: Store, key: AuditKey) -> None:
    look, notes = _look(store, key)
    for problem in PROBLEMS:
        _draw(store, problem, [UNPARSED] * 100 + [RIGHT] * 28, truncated=True)
    grade_responses(store, PROBLEMS, find_ungraded(store, key), key=key, progress=Notes())
    look.check()
    (warning,) = notes.notes
    assert warning.startswith(
        "warning: base: pass@1 so far .22; 224 of 1,024 responses to 8 problems have a parsed answer, 1,024 are "
        "truncated at 16 tokens; first response: "
        f"'{SHOWN}'; "
    )
    assert "--max-tokens" in warning
    assert look.is_final


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "truncated", "stops"),
    [
        ([UNPARSED] * 120 + [RIGHT] * 8, False, True),  # 94 % unparsed
        ([WRONG] * 120 + [RIGHT] * 8, True, True),  # 94 % wrong and truncated
        ([WRONG] * 120 + [RIGHT] * 8, False, False),  # hard problems
        ([RIGHT] * N, True, False),  # a base that continues after its answer
        ([UNPARSED] * 100 + [RIGHT] * 28, False, False),  # unusual, but usable
    ],
)
def test_strict_stops_if_nearly_no_response_is_parsed_and_keeps_the_samples(
    store: Store, key: AuditKey, kinds: list[str], truncated: bool, stops: bool
) -> None:
    look, _ = _look(store, key, strict=True)
    with Grader(store, key, PROBLEMS, look=look) as grader:
        for problem in PROBLEMS[:-1]:
            grader.add(_draw(store, problem, kinds, truncated=truncated))
        last = _draw(store, PROBLEMS[-1], kinds, truncated=truncated)
        message = r"--strict: base: pass@1 so far .*; fix the prompt .* are kept"
        expected: AbstractContextManager[object] = (
            pytest.raises(UnreadableError, match=message) if stops else nullcontext()
        )
        with expected:
            grader.add(last)
    assert len(store.frame("FROM samples")) == len(PROBLEMS) * N


def test_all_responses_of_a_small_base_are_enough(store: Store, key: AuditKey) -> None:
    look, notes = _look(store, key, strict=True)
    _draw(store, PROBLEMS[0], [UNPARSED] * 4)
    grade_responses(store, PROBLEMS, find_ungraded(store, key), key=key, progress=Notes())
    look.check()
    assert len(notes.notes) == 1
    with pytest.raises(UnreadableError, match="0 of 4 responses to 1 problem have a parsed answer;"):
        look.check(is_last=True)
