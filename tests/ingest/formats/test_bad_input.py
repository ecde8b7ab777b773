"""Bad input: every record becomes a sample or a fault, in order, and only ``ImportFileError`` is raised.

In records of every tool, a value anywhere is replaced by an arbitrary one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from oversharp.diagnostics.ingest.formats import (
    evalscope_reviews,
    every_eval_ever,
    find_files,
    limit_of_rlvr,
    mapped,
    nemo_gym,
    nemo_skills,
    own_parquet,
    prime_rl,
    skyrl,
    slime,
    tinker_cookbook,
    trl_completions,
    verl,
)
from oversharp.diagnostics.ingest.formats.contract import Fault, Importer, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.rows import LONG_NUMBER, NESTED, NOT_AN_OBJECT, NOT_JSON, NOT_UTF8, records
from oversharp.diagnostics.records.errors import ImportFileError
from tests.ingest.formats.reading import checked

#: With lone surrogates, which JSON can contain but UTF-8 cannot.
TEXT = st.text(st.characters(categories=["L", "N", "P", "Z", "Cc", "Cs"]), max_size=6)
NUMBER = st.integers() | st.floats() | st.sampled_from([10**400, -(10**25), 2**31, 2**63])


def values(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Any JSON value, with such texts."""
    return st.recursive(
        st.none() | st.booleans() | NUMBER | text,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=6,
    )


JSON, PICKLED = values(TEXT), values(st.text(max_size=6))
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True, kw_only=True)
class Case:
    """A tool's importer with a good record."""

    importer: Importer
    record: dict[str, Any]
    name: str
    options: ReadOptions = field(default_factory=ReadOptions)


TRACES = (Path(__file__).parent / "data/prime_rl/rollouts/step_4/train/all/traces.jsonl").read_text().splitlines()


VERL = {"input": "q", "output": "2", "gts": "2", "score": 1.0, "step": 40, "uid": "a_0_0", "acc": True, "pred": "2"}
NAMES = {
    "prompt": "doc.q", "response": "out.0", "gold": "doc.a", "reward": "right", "step": "step", "problem": "id",
    "index": "i", "answer": "pred", "n_tokens": "n", "finish_reason": "stop", "task": "set", "greedy": "greedy",
}  # fmt: skip
MAPPED = {
    "doc": {"q": "q", "a": "2"}, "out": ["2"], "right": 1.0, "step": 40, "id": "x", "i": 3, "pred": "2", "n": 4,
    "stop": "length", "set": "sums", "greedy": False,
}  # fmt: skip
EVALUATED = {
    "input_prompt": "q", "output_response": "2", "score": [0.0, 1.0], "stop_reason": "stop",
    "env_extras": {"reward_spec": {"ground_truth": "2"}}, "data_source": "sums",
}  # fmt: skip
PROBLEM = {
    "idx": 3, "question": "q", "gt": "2", "code": ["2", "3"], "pred": ["2", "3"], "score": [True, False],
    "finish_reason": ["stop", None],
}  # fmt: skip
SAMPLE = {
    "prompt": "q", "response": "2", "response_length": 2, "label": "2", "reward": {"acc": 1.0}, "loss_mask": [1, 1],
    "rollout_log_probs": [-0.5, -0.25], "status": "completed", "metadata": {"source_name": "sums"},
}  # fmt: skip
QUESTION = [{"role": "user", "content": "q"}]
ROLLED_OUT = {
    "responses_create_params": {"input": QUESTION, "temperature": 1.0},
    "response": {"output": [{"type": "message", "content": [{"text": "2"}]}], "usage": {"output_tokens": 2}},
    "reward": 1.0, "expected_answer": "2", "_ng_task_index": 0, "_ng_rollout_index": 1, "agent_ref": {"name": "sums"},
}  # fmt: skip
SHARED = {
    "schema_version": "0.3.0", "evaluation_id": "e", "sample_id": "q", "interaction_type": "single_turn",
    "input": {"raw": "q", "reference": ["2"]}, "output": {"raw": ["2"]}, "evaluation": {"score": 1.0},
    "metadata": {"step": "40", "sample_index": "1", "greedy": "false", "n_tokens": "4", "finish_reason": "stop"},
}  # fmt: skip
SKILLS = {
    "generation": "2", "_full_generation": "2", "num_generated_tokens": 4, "finish_reason": "stop", "id": "x",
    "problem": "q", "expected_answer": ["2", "two"], "predicted_answer": "2", "symbolic_correct": True,
    "judgement": "Judgement: Yes", "judge_correct": True,
}  # fmt: skip
REVIEWED = {
    "index": 3, "target": "2", "input": "q",
    "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [{"type": "text", "text": "2"}]}],
    "sample_score": {
        "score": {"value": {"acc": 1.0}, "prediction": "2", "extracted_prediction": "2", "main_score_name": "acc"},
        "sample_id": 3, "group_id": 1,
    },
}  # fmt: skip
TRAJECTORY = {
    "idx": 3, "benchmark": "sums", "example_id": "x", "reward": 1.0, "metrics": {"correct": 1.0}, "error": None,
    "turns": [{"role": "user", "content": "q", "token_count": 1}, {"role": "assistant", "content": "2"}],
    "logs": {"expected": "2", "extracted": "2"},
}  # fmt: skip
COMPLETION = {"step": 3, "prompt": QUESTION, "completion": "2", "right": 1.0, "advantage": 0.5}
OF_LINES = [
    Case(importer=verl.IMPORTER, record=VERL, name="40.jsonl"),
    Case(importer=mapped.IMPORTER, record=MAPPED, name="40.jsonl", options=ReadOptions(fields=NAMES)),
    Case(importer=prime_rl.IMPORTER, record=json.loads(TRACES[0]), name="rollouts/step_4/train/all/traces.jsonl"),
    Case(importer=skyrl.IMPORTER, record=EVALUATED, name="global_step_40_evals/sums.jsonl"),
    Case(importer=nemo_gym.IMPORTER, record=ROLLED_OUT, name="step_40.jsonl"),
    Case(importer=every_eval_ever.IMPORTER, record=SHARED, name="grpo-step-40/x_samples.jsonl"),
    Case(importer=nemo_skills.IMPORTER, record=SKILLS, name="step_40/eval-results/aime24/output-rs3.jsonl"),
    Case(importer=evalscope_reviews.IMPORTER, record=REVIEWED, name="reviews/checkpoint-40/gsm8k_main.jsonl"),
    Case(importer=tinker_cookbook.IMPORTER, record=TRAJECTORY, name="step_40/sums/trajectories.jsonl"),
    Case(importer=limit_of_rlvr.IMPORTER, record=PROBLEM, name="test_cot_-1_seed0_t0.6_s0_e-1.jsonl"),
]
ROLLOUT = {
    "step": 3, "problem_id": "x", "sample_index": 1, "prompt": "q", "response": "2", "reward": 1.0, "correct": True,
    "state": "ok", "advantage": 0.5, "n_tokens": 4, "truncated": False, "logp_sum": -1.5,
}  # fmt: skip
OF_ROWS = [
    Case(importer=own_parquet.IMPORTER, record=ROLLOUT, name="rollouts/step_20.parquet"),
    Case(importer=trl_completions.IMPORTER, record=COMPLETION, name="completions_00003.parquet"),
    Case(importer=mapped.IMPORTER, record=MAPPED, name="40.parquet", options=ReadOptions(fields=NAMES)),
]


def by_importer(case: Case) -> str:
    return f"{case.importer.name}{Path(case.name).suffix}"


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*at, key)
        yield from _places(value[key], (*at, key))


@st.composite
def changed(draw: st.DrawFn, record: dict[str, Any], by: st.SearchStrategy[Any] = JSON) -> dict[str, Any]:
    """Return ``record`` with a value replaced or removed."""
    copy = json.loads(json.dumps(record))
    *way, last = draw(st.sampled_from(list(_places(copy))))
    holder = copy
    for key in way:
        holder = holder[key]
    if draw(st.booleans()):
        holder[last] = draw(by)
    else:
        del holder[last]
    return copy


def write(folder: Path, case: Case, *records: Any) -> Path:
    """Write a file of the case with these records, by default with its good record."""
    path = folder / case.name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist([*(records or [case.record])]), path)
    else:
        path.write_text("".join(json.dumps(one) + "\n" for one in records or [case.record]), encoding="utf-8")
    return path


def read(case: Case, path: Path) -> list[Recorded | Fault]:
    return checked(case.importer.read_samples(path, case.options))


# ---------------------------------------------------------------- anything in a record


@pytest.mark.slow
@pytest.mark.parametrize("case", OF_LINES, ids=by_importer)
@given(data=st.data())
@SETTINGS
def test_no_line_stops_the_reader(tmp_path: Path, case: Case, data: st.DataObject) -> None:
    records = data.draw(st.lists(changed(case.record) | JSON, min_size=1, max_size=4))
    path = write(tmp_path, case, *records, case.record)
    items = read(case, path)
    case.importer.settings(path)
    case.importer.recognises(path, records[0] if isinstance(records[0], dict) else {})
    assert isinstance(items[-1], Recorded)  # a good record after bad ones is kept
    assert items[-1].line == len(records) + 1


COLUMN = st.sampled_from(
    [None, True, 7, -1, 2**40, 0.5, math.nan, math.inf, "", "text", [1.0], [], {"a": 1}, b"\xff", [{"content": "q"}]]
)


@pytest.mark.slow
@pytest.mark.parametrize("case", OF_ROWS, ids=by_importer)
@given(data=st.data())
@SETTINGS
def test_no_row_stops_the_reader(tmp_path: Path, case: Case, data: st.DataObject) -> None:
    record = data.draw(changed(case.record, COLUMN))
    path = write(tmp_path, case, record, record)
    case.importer.recognises(path, record)
    case.importer.settings(path)
    read(case, path)


@given(sample=changed(SAMPLE, PICKLED) | PICKLED)
@SETTINGS
def test_no_pickled_sample_stops_the_reader(tmp_path: Path, sample: Any) -> None:
    path = tmp_path / "7.pt"
    torch.save({"rollout_id": 7, "samples": [sample, SAMPLE]}, path)
    case = Case(importer=slime.IMPORTER, record=SAMPLE, name=path.name)
    with suppress(ImportFileError):  # of several rewards one has to be chosen
        assert len(read(case, path)) == 2


# ---------------------------------------------------------------- broken files


@pytest.mark.parametrize("case", OF_LINES, ids=by_importer)
def test_a_file_that_is_cut_short_keeps_its_whole_lines(tmp_path: Path, case: Case) -> None:
    path = write(tmp_path, case)
    line = path.read_bytes().strip()
    path.write_bytes(b"\xef\xbb\xbf" + line + b"\n\n" + line[: len(line) // 2])
    items = read(case, path)
    assert isinstance(items[0], Recorded)
    assert items[-1] == Fault(3, NOT_JSON)


@pytest.mark.parametrize("case", OF_LINES, ids=by_importer)
def test_bytes_that_are_no_text_and_values_that_are_no_record_are_faults(tmp_path: Path, case: Case) -> None:
    path = write(tmp_path, case)
    path.write_bytes(b'{"input": "\xff"}\n[1]\n3\n' + b"[" * 100_000 + b"\n" + path.read_bytes())
    items = read(case, path)
    assert items[:4] == [Fault(1, NOT_UTF8), Fault(2, NOT_AN_OBJECT), Fault(3, NOT_AN_OBJECT), Fault(4, NESTED)]
    assert isinstance(items[4], Recorded)


@pytest.mark.slow
@pytest.mark.parametrize("case", OF_LINES, ids=by_importer)
def test_a_response_of_ten_megabytes_is_read(tmp_path: Path, case: Case) -> None:
    long = "<|" * 5_000_000
    record = json.loads(
        json.dumps(case.record).replace('"2"', json.dumps(long)).replace('"content": "1"', f'"content": "{long}"')
    )
    first = read(case, write(tmp_path, case, record))[0]
    assert isinstance(first, Recorded)
    assert len(first.response) == len(long)


@pytest.mark.parametrize("case", [*OF_LINES, *OF_ROWS], ids=by_importer)
def test_an_empty_file_and_one_that_is_not_there(tmp_path: Path, case: Case) -> None:
    path = write(tmp_path, case)
    path.unlink()
    with pytest.raises(ImportFileError):
        read(case, path)
    path.touch()
    if path.suffix == ".parquet":
        with pytest.raises(ImportFileError, match="not a readable Parquet file"):
            read(case, path)
    else:
        assert read(case, path) == []


@pytest.mark.parametrize("case", OF_ROWS, ids=by_importer)
def test_a_parquet_file_that_is_cut_short_is_said_to_be(tmp_path: Path, case: Case) -> None:
    path = write(tmp_path, case, *[case.record] * 100)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ImportFileError, match="not a readable Parquet file"):
        read(case, path)


CSV_NAMES = ReadOptions(fields={"prompt": "q", "response": "a", "reward": "s"})


def test_a_byte_of_a_csv_file_that_is_no_utf8_costs_its_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "40.csv"
    path.write_bytes("q,a,s\n1+1?,deux é,1\n".encode() + b"1+1?,\xe9,1\n" + b'1+1?,"2\n2",1\n1,2,3,4\n1+1?,2,0\n')
    items = checked(mapped.read_samples(path, CSV_NAMES))
    assert [one.line for one in items if isinstance(one, Recorded)] == [2, 5, 7]
    assert items[1] == Fault(3, NOT_UTF8)
    assert items[3] == Fault(6, "a CSV line with more or fewer fields than the header")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_a_csv_file_of_another_encoding_is_said_to_be(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "40.csv"
    path.write_bytes("q,a,s\n1+1?,2,1\n".encode(encoding))
    with pytest.raises(ImportFileError, match=r"40\.csv: not UTF-8 text in its header \(UTF-16\?\); save it as UTF-8"):
        list(mapped.read_samples(path, CSV_NAMES))


def test_columns_of_one_name_are_named(tmp_path: Path) -> None:
    csv, table = tmp_path / "40.csv", tmp_path / "40.parquet"
    csv.write_text("q,a,s,a,,,q\n1+1?,2,1,3,,,\n")
    parquet.write_table(pa.table([["1+1?"], ["2"], ["3"]], names=["q", "a", "a"]), table)
    for path, names in ((csv, "a, q"), (table, "a")):
        with pytest.raises(ImportFileError, match=rf"{path.name}: has several columns named {names}; rename"):
            list(mapped.read_samples(path, CSV_NAMES))
    csv.write_text("q,a,s,,\n1+1?,2,1,,\n")
    assert isinstance(checked(mapped.read_samples(csv, CSV_NAMES))[0], Recorded), "a spreadsheet leaves columns unnamed"


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("-5", "step is below 0"),
        ("99999999999", "step is above 2,147,483,647"),
        ("1" + "0" * 400, "step is above 2,147,483,647"),
        ('"' + "9" * 5000 + '"', "step is above 2,147,483,647"),
        ("2.5", "step is not a whole number"),
        ("9" * 5000, LONG_NUMBER),
        ("[" * 100_000 + "]" * 100_000, NESTED),
        ("3", None),
    ],
    ids=["negative", "large", "larger", "in quotes", "broken", "of 5,000 digits", "nested", "good"],
)
def test_what_is_wrong_with_a_step_is_said_in_the_right_words(tmp_path: Path, step: str, why: str | None) -> None:
    path = tmp_path / "dump.jsonl"
    path.write_text(json.dumps(VERL).replace("40", step) + "\n")
    (read,) = checked(verl.IMPORTER.read_samples(path, ReadOptions()))
    assert getattr(read, "why", None) == why


def test_a_text_that_is_held_once_for_many_rows_is_one(tmp_path: Path) -> None:
    """A Parquet file of a kilobyte may mean gigabytes."""
    path = tmp_path / "40.parquet"
    prompts = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["x" * 1000, "y"]))
    parquet.write_table(pa.table({"q": prompts, "a": ["2"] * 4}), path)
    read = [one[1] for one in records(path) if not isinstance(one, Fault)]
    assert [one["q"] for one in read] == ["x" * 1000, "y", None, "x" * 1000]
    assert read[0]["q"] is read[3]["q"]
    assert [one["a"] for one in read] == ["2"] * 4


def test_a_quote_that_is_left_open_stops_a_csv_file_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "40.csv"
    path.write_text('q,a,s\n1+1?,2,1\nragged\n1+1?,3,0\n1+1?,"open,1\n1+1?,2,1\n')
    items = mapped.read_samples(path, CSV_NAMES)
    assert [type(next(items)) for _ in range(3)] == [Recorded, Fault, Recorded]
    with pytest.raises(ImportFileError, match=r"40\.csv: .* line 5: unexpected end of data \(an unclosed quote"):
        next(items)


@pytest.mark.parametrize("case", [*OF_LINES, *OF_ROWS], ids=by_importer)
def test_a_good_record_of_every_tool_is_a_sample(tmp_path: Path, case: Case) -> None:
    """The records of the cases are good before they are changed."""
    path = write(tmp_path, case)
    assert {type(one) for one in read(case, path)} == {Recorded}
    assert case.importer.name == "mapped" or case.importer.recognises(path, case.record)


def test_in_one_folder_every_file_finds_its_reader(tmp_path: Path) -> None:
    cases = [case for case in (*OF_LINES, *OF_ROWS) if case.importer.name != "mapped"]
    for case in cases:
        write(tmp_path, case)
    torch.save({"rollout_id": 7, "samples": [SAMPLE]}, tmp_path / "7.pt")
    torch.save({"weight": torch.zeros(2)}, tmp_path / "model.pt")
    for name in ("aggregated_results.jsonl", "metrics.jsonl"):
        (tmp_path / name).write_text('{"eval/all/avg_score": 0.5}')
    inside = find_files([tmp_path], allow_pickle=True)
    readers = {one.path.relative_to(tmp_path).as_posix(): one.importer.name for one in inside.files}
    assert readers == {**{case.name: case.importer.name for case in cases}, "7.pt": "slime"}
    assert {path.name for path in inside.unknown} == {"aggregated_results.jsonl", "metrics.jsonl", "model.pt"}


def test_records_of_another_tool_are_faults_and_not_samples(tmp_path: Path) -> None:
    for case in OF_LINES:
        for other in OF_LINES:
            if case is not other:
                path = write(tmp_path, case, other.record)
                assert {type(one) for one in read(case, path)} == {Fault}
                assert not case.importer.recognises(path, other.record)
