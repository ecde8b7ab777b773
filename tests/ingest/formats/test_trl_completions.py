"""The files under data/trl were written by TRL 1.16.0."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from oversharp.diagnostics.ingest.formats import trl_completions
from oversharp.diagnostics.ingest.formats.rows import first_record
from oversharp.diagnostics.records.errors import ImportFileError
from tests.ingest.formats.reading import reader

DATA = Path(__file__).parent / "data" / "trl"
TEXT, TWO = (DATA / name / "completions" / "completions_00002.parquet" for name in ("text", "two"))
CHAT = DATA / "chat" / "completions" / "completions_00001.parquet"
read = reader(trl_completions)


def test_a_dump_of_trl_is_recognised_and_read() -> None:
    assert trl_completions.IMPORTER.recognises(TEXT, first_record(TEXT))
    assert (trl_completions.place(TEXT).run, trl_completions.place(TEXT).step) == ("text", 2)
    samples = read(TEXT)
    assert len(samples) == 8
    first = samples[0]
    assert (first.prompt, first.gold, first.reward, first.step) == ("3 7 12 = 54 :", "3", 0.0, 2)
    assert {one.prompt for one in samples[:4]} == {first.prompt}  # the group


def test_chat_messages_become_one_text() -> None:
    first = read(CHAT)[0]
    assert first.prompt == "system: 3\n\nuser: 1 7 12 = 54 :"
    assert first.response == "67 44 61 4 8"
    assert first.reward == 0.5


def test_among_several_rewards_the_user_chooses() -> None:
    with pytest.raises(ImportFileError, match=r"pass --reward with one of is_right, size .TRL's weighted sum"):
        read(TWO)
    sizes = [one.reward for one in read(TWO, reward="size")]
    assert sizes == pytest.approx([0.5, 0.5, 0.5, 0.5, 0.4, 0.5, 0.5, 0.5])
    with pytest.raises(ImportFileError, match=r"no column 'acc'; --reward can be is_right, size"):
        read(TWO, reward="acc")


def frame(tmp_path: Path, **columns: Any) -> Path:
    path = tmp_path / "completions_00007.parquet"
    own = {"step": ["7", "7"], "prompt": ["q", "q"], "completion": ["2", "3"], "advantage": [1.0, -1.0]}
    pd.DataFrame({**own, **columns}).to_parquet(path)
    return path


def test_where_a_reward_function_returned_none_there_is_no_score(tmp_path: Path) -> None:
    samples = read(frame(tmp_path, right=[1.0, math.nan]))
    assert [one.reward for one in samples] == [1.0, None]  # pandas writes null
    assert [one.step for one in samples] == [7, 7]  # older versions wrote it as text


def test_a_dump_without_a_reward_has_no_score(tmp_path: Path) -> None:
    assert [one.reward for one in read(frame(tmp_path, note=["a", "b"]))] == [None, None]
