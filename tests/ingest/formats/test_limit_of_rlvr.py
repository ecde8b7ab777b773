"""limit-of-RLVR needs a GPU to run: the records have the fields that its ``math_eval.py`` and ``evaluate.py`` write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from oversharp.diagnostics.ingest.formats import limit_of_rlvr
from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Recorded
from tests.ingest.formats.reading import reader, write_lines

NAME = "test_qwen-boxed_-1_seed1_t{}_s0_e-1.jsonl"
LINE: dict[str, Any] = {
    "idx": 3, "question": "1+1?", "gt_cot": "", "gt": "2", "answer": 2, "code": ["It is \\boxed{2}.", "So \\boxed{3}"],
    "pred": ["2", "3"], "report": [None, None], "finish_reason": ["stop", "length"], "score": [True, False],
}  # fmt: skip
read = reader(limit_of_rlvr)


def dump(tmp_path: Path, *lines: dict[str, Any], temperature: str = "0.6") -> Path:
    path = tmp_path / "RUN_n2_seed1" / "eval_results" / "global_step_60" / "aime24" / NAME.format(temperature)
    return write_lines(path, *lines)


def test_every_response_of_a_line_is_a_sample(tmp_path: Path) -> None:
    path = dump(tmp_path, LINE)
    assert limit_of_rlvr.recognises(path, LINE)
    right = Recorded(
        1, "1+1?", "It is \\boxed{2}.", gold="2", reward=1.0, problem="3", answer="2", finish_reason="stop"
    )
    wrong = replace(right, response="So \\boxed{3}", reward=0.0, answer="3", finish_reason="length")
    assert read(path) == [right, wrong]


def test_folders_tell_run_step_and_benchmark_and_seeds_add_up(tmp_path: Path) -> None:
    path = dump(tmp_path, LINE)
    assert limit_of_rlvr.place(path) == FilePlace(run="RUN_n2", step=60, task="aime24")
    assert limit_of_rlvr.place(Path("/aime24/out.jsonl")) == FilePlace(task="aime24")
    assert limit_of_rlvr.place(Path("/global_step_0/aime24/out.jsonl")) == FilePlace(step=0, task="aime24")
    assert limit_of_rlvr.settings(path) == {"temperature": 0.6}


def test_at_temperature_zero_samples_are_greedy(tmp_path: Path) -> None:
    path = dump(tmp_path, LINE, temperature="0.0")
    assert limit_of_rlvr.settings(path) == {"temperature": 0.0}
    assert all(one.greedy for one in read(path))


def test_outputs_of_the_older_scripts_have_no_finish_reason(tmp_path: Path) -> None:
    older = {name: value for name, value in LINE.items() if name != "finish_reason"}
    path = dump(tmp_path, older)
    assert limit_of_rlvr.recognises(path, older)
    assert [one.finish_reason for one in read(path)] == [None, None]


def test_lists_that_do_not_agree_are_a_fault(tmp_path: Path) -> None:
    path = dump(tmp_path, LINE | {"score": [True]}, LINE | {"code": "2"}, LINE | {"score": [True, "no"]})
    assert read(path)[:2] == [
        Fault(1, "score does not have one entry per response"),
        Fault(2, "code is not a list of responses"),
    ]
    assert read(path)[3] == Fault(3, "score is text, not a number")
    assert read(dump(tmp_path, LINE), reward="acc") == [Fault(1, "no acc")]
