from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import mapped
from oversharp.diagnostics.ingest.formats.contract import Fault, Recorded
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.records.errors import ConfigError, ImportFileError
from tests.ingest.formats.reading import reader, write_lines

ALL = {
    "prompt": "doc.question", "response": "outputs.0", "gold": "doc.answer", "reward": "metrics.exact.match",
    "step": "ckpt", "problem": "id", "index": "repeat", "answer": "parsed", "n_tokens": "length",
    "finish_reason": "stop", "task": "set", "greedy": "argmax",
}  # fmt: skip
RECORD: dict[str, Any] = {
    "doc": {"question": "1+1?", "answer": 2}, "outputs": ["It is 2"], "ckpt": "40", "id": 17, "repeat": 3,
    "metrics": {"exact.match": 0.5, "exact": {"match": True}}, "parsed": "2", "length": 4.0, "stop": "EOS",
    "set": "sums", "argmax": True,
}  # fmt: skip
EXPECTED = Recorded(
    1, "1+1?", "It is 2", gold="2", reward=1.0, step=40, problem="17", index=3, answer="2", greedy=True, n_tokens=4,
    finish_reason="stop", task="sums",
)  # fmt: skip
FLAT = {"prompt": "q", "response": "a", "reward": "right", "step": "step", "gold": "gold", "greedy": "greedy"}
read = reader(mapped)


def test_every_field_of_ours_can_be_named(tmp_path: Path) -> None:
    assert read(write_lines(tmp_path / "any.jsonl", RECORD), fields=ALL) == [EXPECTED]


def test_a_field_whose_own_name_has_dots_is_found_first(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "any.jsonl", RECORD | {"metrics.exact.match": 0.25})
    assert [one.reward for one in read(path, fields=ALL)] == [0.25]


def test_parquet_is_read_as_json_lines_are(tmp_path: Path) -> None:
    parquet.write_table(pa.Table.from_pylist([RECORD]), tmp_path / "any.parquet")
    assert read(tmp_path / "any.parquet", fields=ALL) == [EXPECTED]


def test_csv_knows_only_text(tmp_path: Path) -> None:
    path = tmp_path / "any.csv"
    path.write_text('q,a,right,step,gold,greedy\n1+1?,"It is\n2",True,40,2,False\n1+1?,3,false,40,,\n1+1?,3,,,,\n')
    assert read(path, fields=FLAT) == [
        Recorded(3, "1+1?", "It is\n2", gold="2", reward=1.0, step=40),
        Recorded(4, "1+1?", "3", reward=0.0, step=40),
        Recorded(5, "1+1?", "3"),
    ]


@pytest.mark.parametrize("kind", ["jsonl", "jsonl of texts", "parquet", "csv"])
def test_a_reward_whose_sum_would_be_infinite_is_a_fault(tmp_path: Path, kind: str) -> None:
    rows = [{"q": "1+1?", "a": "2", "right": reward} for reward in (1e100, 1e308, -1e101)]
    path = tmp_path / f"any.{kind.split()[0]}"
    if kind == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "csv":
        path.write_text("q,a,right\n" + "".join(f"1+1?,2,{row['right']}\n" for row in rows))
    else:
        write_lines(path, *(row | {"right": str(row["right"])} if "texts" in kind else row for row in rows))
    first, *others = read(path, fields={"prompt": "q", "response": "a", "reward": "right"})
    assert isinstance(first, Recorded)
    assert first.reward == 1e100
    assert [one.why for one in others] == ["right is beyond 1e+100"] * 2


def test_a_chat_is_one_text(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "any.jsonl", {"messages": [{"role": "user", "content": "1+1?"}, {"content": "2"}]})
    names = {"prompt": "messages.0.content", "response": "messages.1.content"}
    assert read(path, fields=names) == [Recorded(line=1, prompt="1+1?", response="2")]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("40.jsonl", 40),
        ("step_40.csv", 40),
        ("step-7/out.csv", 7),
        ("aime24.jsonl", None),
        ("checkpoint-8/40.csv", 40),
        ("eval_step20.jsonl", 20),
        ("step-20-of-100.jsonl", 20),
        ("ckpt-100/a.csv", 100),
        ("rl-100/a.csv", 100),
        ("epoch-1.jsonl", 1),
        ("rl-100.jsonl", 100),
        ("base.jsonl", 0),
        ("global_step_50/eval/aime24.jsonl", 50),
        ("step-0-base/a.csv", 0),
        ("step-160-rl/a.csv", 160),
        ("part-00001-of-00004.csv", None),
        ("seed_1.csv", None),
    ],
)
def test_a_step_can_be_in_a_name(tmp_path: Path, name: str, step: int | None) -> None:
    assert mapped.place(tmp_path / "all" / name).step == step


def test_files_without_a_mapping_are_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "any.jsonl", RECORD)
    assert not mapped.IMPORTER.recognises(path, RECORD)
    with pytest.raises(ImportFileError, match=r"pass --map prompt=…,response=…,reward=…"):
        read(path, fields={"prompt": "doc.question"})


def test_the_score_can_be_named_on_its_own(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "any.jsonl", RECORD)
    names = {"prompt": "doc.question", "response": "parsed"}
    assert [one.reward for one in read(path, fields=names, reward="length")] == [4.0]


def test_a_field_that_is_named_wrongly_is_a_fault_with_its_name(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "any.jsonl", RECORD)
    assert read(path, fields=ALL | {"prompt": "doc.qestion"}) == [Fault(1, "no doc.qestion")]
    unrewarded = {ours: theirs for ours, theirs in ALL.items() if ours != "reward"}
    assert read(path, fields=unrewarded | {"response": "doc.answer.text"}) == [Fault(1, "no doc.answer.text")]
    assert read(path, fields=ALL | {"reward": "reward"}) == [Fault(1, "no reward")]
    assert read(path, fields=ALL | {"step": "set"}) == [
        Fault(1, "set is neither a number nor a name with a step, such as checkpoint-200 or base")
    ]


@pytest.mark.parametrize("ours", ["cluster", "problem", "finish_reason", "prompt", "reward"])
def test_a_field_that_no_record_has_is_refused_with_its_nearest_name(tmp_path: Path, ours: str) -> None:
    for step in (0, 20):
        write_lines(tmp_path / f"{step}.jsonl", {"q": "1+1?", "a": "2", "right": 1.0, "template": "sum"})
    fields = {"prompt": "q", "response": "a", "reward": "right"}
    with pytest.raises(ConfigError, match=f"--map {ours}=tmplate: no record has that field; did you mean: template"):
        plan_import([tmp_path], ImportConfig(map={**fields, ours: "tmplate"}))
    assert len(plan_import([tmp_path], ImportConfig(map={**fields, ours: "template"})).files) == 2


def test_a_field_that_one_record_of_one_file_has_is_known(tmp_path: Path) -> None:
    record = {"q": "1+1?", "a": "2", "right": 1.0}
    write_lines(tmp_path / "0.jsonl", record)
    write_lines(tmp_path / "20.jsonl", record, record | {"doc": {"template": "sum"}})
    fields = {"prompt": "q", "response": "a", "reward": "right", "cluster": "doc.template"}
    assert len(plan_import([tmp_path], ImportConfig(map=fields)).files) == 2


#: Columns of Parquet: converted at once if all values are usual, else row by row.
COLUMNS: dict[str, Any] = {
    "q": pa.array(["1+1?", "1+2?"]), "a": pa.array(["2", ""]), "right": pa.array([True, None]),
    "step": pa.array([0, 40], pa.uint16()), "gold": pa.array([2, None]), "greedy": pa.array([0.0, 1.0]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "by_columns"),
    [
        ({}, True),
        ({"gold": pa.array(["", "x"]), "right": pa.array([0, 3])}, True),
        ({"right": pa.array([0.5, 1e99]), "q": pa.array(["ü", "\n"], pa.large_string())}, True),
        ({"step": None, "gold": None}, True),
        ({"gold": pa.array(["a", None]).dictionary_encode(), "q": pa.array(["b", "b"]).dictionary_encode()}, True),
        ({"right": pa.array([0.5, float("nan")])}, False),
        ({"right": pa.array(["0.5", "true"])}, False),
        ({"right": None}, False),
        ({"a": pa.array(["2", None])}, False),
        ({"q": pa.array([[{"role": "user", "content": "1+1?"}]] * 2)}, False),
        ({"step": pa.array([1, -1])}, False),
        ({"step": pa.array([40.0, 1.5])}, False),
        ({"gold": pa.array([0.5, None])}, False),
    ],
)
def test_columns_of_parquet_say_what_its_rows_say(tmp_path: Path, changed: dict[str, Any], by_columns: bool) -> None:
    table = pa.table({name: column for name, column in {**COLUMNS, **changed}.items() if column is not None})
    parquet.write_table(table, tmp_path / "any.parquet")
    (part,) = table.to_batches()
    rows = [mapped._sample(line, fields, FLAT) for line, fields in enumerate(part.to_pylist(), start=1)]
    assert read(tmp_path / "any.parquet", fields=FLAT) == rows
    assert (mapped._columns(part, FLAT) is not None) == by_columns
