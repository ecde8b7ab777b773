"""Layouts of dumps: lists of samples in a record, JSON documents, compressed text, tables, chats."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import find_files, mapped, opening
from oversharp.diagnostics.ingest.formats.contract import Fault, Recorded
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.records.errors import ConfigError, ImportFileError
from oversharp.diagnostics.verifiers.reading.golds import accepted_golds
from tests.ingest.formats.reading import reader, samples, write_lines

read = reader(mapped)
FLAT = {"prompt": "q", "response": "text", "gold": "gold", "reward": "ok"}
TWO = [{"q": "2+2?", "gold": "4", "text": "4", "ok": True}, {"q": "2+2?", "gold": "4", "text": "5", "ok": False}]
READ = [("2+2?", "4", "4", 1.0), ("2+2?", "5", "4", 0.0)]


def told(path: Path, fields: dict[str, str]) -> list[tuple[str, str, str | None, float | None]]:
    """Return prompt, response, gold and reward of every item of a file, all of them samples."""
    items = read(path, fields=fields)
    assert len(samples(items)) == len(items)
    return [(one.prompt, one.response, one.gold, one.reward) for one in samples(items)]


def zstd(text: bytes) -> bytes:
    return bytes(pa.compress(text, codec="zstd", asbytes=True))


# ---------------------------------------------------------------- several samples in a record

ROLLOUTS = {"q": "2+2?", "gold": "4", "rollouts": [{"text": "4", "correct": True}, {"text": "5", "correct": False}]}
PARALLEL = {"q": "2+2?", "gold": "4", "texts": ["4", "5"], "oks": [1, 0]}


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (ROLLOUTS, {"response": "rollouts[].text", "reward": "rollouts[].correct"}),
        (ROLLOUTS, {"response": "rollouts.text", "reward": "rollouts.correct"}),
        (PARALLEL, {"response": "texts", "reward": "oks"}),
        (PARALLEL, {"response": "texts[]", "reward": "oks[]"}),
        ({"q": "2+2?", "gold": "4", "out": {"texts": ["4", "5"], "oks": [1, 0]}},
         {"response": "out.texts", "reward": "out.oks"}),
        ({"q": "2+2?", "gold": "4", "out": [{"text": "4"}, {"text": "5"}], "oks": [1, 0]},
         {"response": "out.text", "reward": "oks[]"}),
        ({"q": "2+2?", "gold": "4", "out": [{"text": "4"}, {"text": "5"}], "oks": [1, 0]},
         {"response": "out.text", "reward": "oks"}),
        ({"q": "2+2?", "gold": "4", "out": [[{"role": "assistant", "content": one}] for one in "45"], "oks": [1, 0]},
         {"response": "out", "reward": "oks"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_every_element_of_a_list_of_responses_is_a_sample(
    tmp_path: Path, record: dict[str, Any], fields: dict[str, str], kind: str
) -> None:
    path = tmp_path / f"any.{kind}"
    if kind == "parquet":
        parquet.write_table(pa.Table.from_pylist([record, record]), path)
    else:
        write_lines(path, record, record)
    assert told(path, {"prompt": "q", "gold": "gold", **fields}) == READ * 2


def test_lists_inside_lists_are_gone_through_in_order(tmp_path: Path) -> None:
    record = {"step": 20, "problems": [
        {"q": "1+1?", "runs": [{"t": "2", "s": 1}, {"t": "3", "s": 0}]}, {"q": "1+2?", "runs": [{"t": "3", "s": 1}]},
    ]}  # fmt: skip
    fields = {"prompt": "problems.q", "response": "problems.runs.t", "reward": "problems.runs.s", "step": "step"}
    assert read(write_lines(tmp_path / "any.jsonl", record), fields=fields) == [
        Recorded(1, "1+1?", "2", reward=1.0, step=20),
        Recorded(1, "1+1?", "3", reward=0.0, step=20),
        Recorded(1, "1+2?", "3", reward=1.0, step=20),
    ]


@pytest.mark.parametrize(("path", "response"), [("texts[0]", "4"), ("texts.1", "5"), ("texts[-1]", "5")])
def test_one_element_of_a_list_is_named_by_its_index(tmp_path: Path, path: str, response: str) -> None:
    dump = write_lines(tmp_path / "any.jsonl", PARALLEL)
    (one,) = samples(read(dump, fields={"prompt": "q", "response": path, "reward": path.replace("texts", "oks")}))
    assert (one.response, one.reward) == (response, float(response == "4"))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"oks": [1]}, "oks and texts are lists of different lengths"),
        ({"oks": [1, 0, 1]}, "oks and texts are lists of different lengths"),
        ({"texts": []}, "texts is an empty list"),
        ({"oks": 1}, "oks is a single value, texts a list"),
        ({"oks": [[1, 0], ["no"]]}, "oks is text, not a number"),
    ],
)
def test_lists_that_do_not_go_together_are_a_fault_of_their_record(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    path = write_lines(tmp_path / "any.jsonl", PARALLEL | changed, PARALLEL)
    items = read(path, fields={"prompt": "q", "response": "texts", "reward": "oks"})
    assert [one for one in items if isinstance(one, Fault)] == [Fault(1, why)]
    assert [one.response for one in samples(items) if one.line == 2] == ["4", "5"]


def test_a_list_inside_each_response_is_no_reward(tmp_path: Path) -> None:
    record = {"q": "2+2?", "runs": [{"t": "4", "parts": [{"s": 1}, {"s": 0}]}]}
    path = write_lines(tmp_path / "any.jsonl", record)
    fields = {"prompt": "q", "response": "runs.t", "reward": "runs.parts.s"}
    assert read(path, fields=fields) == [Fault(1, "runs.parts.s has several values for one runs.t")]


# ---------------------------------------------------------------- containers

LINES = "".join(json.dumps(one) + "\n" for one in TWO)
TABLE = {"columns": ["q", "gold", "text", "ok", "_step"], "data": [[*one.values(), 3] for one in TWO], "nrows": 2}
TEXTS = {
    "lines.jsonl": LINES,
    "array.json": json.dumps(TWO),
    "array.jsonl": json.dumps(TWO) + "\n",
    "pretty.json": json.dumps(TWO, indent=2),
    "row_a_line.json": "[\n" + ",\n".join(map(json.dumps, TWO)) + "\n]\n",
    "begun_on_its_line.json": "[" + ",\n".join(map(json.dumps, TWO)) + "]\n",
    "one_after_the_other.json": "\n".join(json.dumps(one, indent=1) for one in TWO),
    "marked.json": "\ufeff" + json.dumps(TWO, indent=2),
    "object.json": json.dumps({"model": "m", "results": TWO}),
    "nested_object.json": json.dumps({"model": "m", "eval": {"sums": {"samples": TWO}, "n": 2}}),
    "pretty_object.json": json.dumps({"model": "m", "tags": ["a"], "results": TWO}, indent=1),
    "samples.table.json": json.dumps(TABLE),
    "pretty.table.json": json.dumps(TABLE, indent=1),
    "rows.csv": "q,gold,text,ok\n2+2?,4,4,True\n2+2?,4,5,false\n",
}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".zst": zstd, ".xz": lzma.compress, ".bz2": bz2.compress,
}  # fmt: skip


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("name", TEXTS)
def test_a_dump_is_read_in_every_container(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(PACKERS[suffix](TEXTS[name].encode()))
    (found,) = find_files([tmp_path], name="mapped").files
    assert told(found.path, FLAT) == READ


def test_what_json_has_not_is_read_in_an_array_too(tmp_path: Path) -> None:
    path = tmp_path / "any.json"
    path.write_text('[{"q": "2+2?", "text": "a\\ud800b", "ok": 1, "loss": NaN},\n{"q": "2+2?", "text": "5", "ok": 0}]')
    fields = {"prompt": "q", "response": "text", "reward": "ok"}
    assert [one.response for one in samples(read(path, fields=fields))] == ["a?b", "5"]


def test_an_array_with_what_is_no_record_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "any.json"
    path.write_text(json.dumps([TWO[0], "text", [1], {"q": "2+2?"}, TWO[1]]))
    items = read(path, fields=FLAT)
    assert [type(one) for one in items] == [Recorded, Fault, Fault, Fault, Recorded]
    assert [one.line for one in items] == [1, 2, 3, 4, 5]


def test_records_of_an_object_have_its_other_fields(tmp_path: Path) -> None:
    path = tmp_path / "any.json"
    path.write_text(json.dumps({"step": 40, "results": TWO, "counts": [1, 2]}))
    (folder,) = plan_import([path], ImportConfig(map={**FLAT, "step": "step"})).files
    assert [one.step for one in samples(read(folder.path, fields={**FLAT, "step": "step"}))] == [40, 40]
    assert told(path, {name: f"results.{field}" for name, field in FLAT.items()}) == READ


def test_compressed_files_of_other_tools_have_their_steps(tmp_path: Path) -> None:
    record = {"input": "q", "output": "2", "gts": "2", "score": 1.0, "step": 40}
    (tmp_path / "40.jsonl.gz").write_bytes(gzip.compress(json.dumps(record).encode()))
    (file,) = plan_import([tmp_path], ImportConfig()).files
    assert (file.importer.name, file.step) == ("verl", 40)


@pytest.mark.parametrize("text", [b'{"q": "' + b" " * 3000, b"[\n" + b" " * 3000 + b"]"], ids=["line", "document"])
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_record_that_would_fill_the_memory_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, suffix: str
) -> None:
    monkeypatch.setattr("oversharp.diagnostics.ingest.formats.rows.MOST_BYTES", 1000)
    monkeypatch.setattr("oversharp.diagnostics.ingest.formats.documents.MOST_BYTES", 1000)
    monkeypatch.setattr(opening, "MOST_BYTES", 1000)
    path = tmp_path / f"any.jsonl{suffix}"
    path.write_bytes(PACKERS[suffix](text))
    with pytest.raises(ImportFileError, match=r"a record or JSON document in it exceeds 512 MiB unpacked"):
        read(path, fields=FLAT)


def test_a_compressed_file_that_breaks_off_keeps_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "any.jsonl.gz"
    packed = gzip.compress(LINES.encode()) + gzip.compress(b'{"q": "2+2?"}\n' * 9)[:-12]
    path.write_bytes(packed)
    with pytest.raises(ImportFileError, match=r"any\.jsonl\.gz: not a readable \.gz file"):
        list(mapped.read_samples(path, mapped.ReadOptions(fields=FLAT)))


# ---------------------------------------------------------------- chats, golds, empty responses, endings, steps

ASKED = [{"role": "system", "content": "Add."}, {"role": "user", "content": [{"type": "text", "text": "2+2?"}]}]


@pytest.mark.parametrize(
    ("messages", "prompt", "response"),
    [
        ([*ASKED, {"role": "assistant", "content": "4"}], "system: Add.\n\nuser: 2+2?", "4"),
        ([ASKED[1], {"role": "assistant", "content": [{"type": "text", "text": "4"}]}], "2+2?", "4"),
        (
            [ASKED[1], {"role": "assistant", "content": "5"}, {"role": "user", "content": "?"},
             {"role": "assistant", "content": "4"}],
            "user: 2+2?\n\nassistant: 5\n\nuser: ?", "4",
        ),
        ([ASKED[1], {"role": "assistant", "content": None}], "2+2?", ""),
    ],
)  # fmt: skip
def test_of_a_chat_the_last_turn_of_the_assistant_is_the_response(
    tmp_path: Path, messages: list[dict[str, Any]], prompt: str, response: str
) -> None:
    path = write_lines(tmp_path / "any.jsonl", {"messages": messages, "ok": 1})
    fields = {"prompt": "messages", "response": "messages", "reward": "ok"}
    assert read(path, fields=fields) == [Recorded(1, prompt, response, reward=1.0)]


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        (ASKED, "messages is mapped to prompt and response, but is not a chat with an assistant message"),
        ([{"role": "assistant", "content": "4"}], "messages has no message before the last assistant message"),
    ],
)
def test_a_chat_without_question_or_answer_is_a_fault(tmp_path: Path, messages: list[dict[str, Any]], why: str) -> None:
    path = write_lines(tmp_path / "any.jsonl", {"messages": messages, "ok": 1})
    fields = {"prompt": "messages", "response": "messages", "reward": "ok"}
    assert read(path, fields=fields) == [Fault(1, why)]


@pytest.mark.parametrize("rewarded", [True, False])
def test_of_a_list_of_golds_any_is_right(tmp_path: Path, rewarded: bool) -> None:
    golds: list[list[Any]] = [["4", "four"], ["4"], [4, 4], []]
    path = write_lines(tmp_path / "any.jsonl", *({"q": "2+2?", "a": "4", "ok": 1, "gold": gold} for gold in golds))
    fields = {"prompt": "q", "response": "a", "gold": "gold", **({"reward": "ok"} if rewarded else {})}
    assert [one.gold for one in samples(read(path, fields=fields))] == ['["4", "four"]', "4", "4", None]
    assert accepted_golds('["4", "four"]') == ("4", "four")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_response_that_is_null_and_has_a_reward_is_empty(tmp_path: Path, kind: str) -> None:
    rows = [
        {"q": "2+2?", "text": None, "ok": 0.0},
        {"q": "2+2?", "text": None, "ok": None},
        {"q": "2+2?", "text": "4", "ok": 1},
    ]
    path = tmp_path / f"any.{kind}"
    if kind == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        write_lines(path, *rows, {"q": "2+2?", "ok": 0})
    items = read(path, fields={"prompt": "q", "response": "text", "reward": "ok"})
    assert items[:3] == [
        Recorded(1, "2+2?", "", reward=0.0), Fault(2, "no text"), Recorded(3, "2+2?", "4", reward=1.0),
    ]  # fmt: skip
    assert items[3:] == ([] if kind == "parquet" else [Recorded(4, "2+2?", "", reward=0.0)])


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(("name", "ends"), [("truncated", ["length", "stop"]), ("finished", ["stop", "length"])])
def test_true_and_false_say_whether_a_response_was_truncated(
    tmp_path: Path, kind: str, name: str, ends: list[str]
) -> None:
    path = tmp_path / f"any.{kind}"
    rows = [{"q": "1", "a": "1", "ok": 1, name: one} for one in (True, False)]
    if kind == "csv":
        path.write_text(f"q,a,ok,{name}\n1,1,1,True\n1,1,1,false\n")
    elif kind == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        write_lines(path, *rows)
    fields = {"prompt": "q", "response": "a", "reward": "ok", "finish_reason": name}
    assert [one.finish_reason for one in samples(read(path, fields=fields))] == ends


def test_true_under_a_name_that_does_not_say_what_is_a_fault(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "any.jsonl", {"q": "1", "a": "1", "flag": True})
    why = "flag is true or false, but its meaning is unknown; rename the field to truncated or finished"
    assert read(path, fields={"prompt": "q", "response": "a", "finish_reason": "flag"}) == [Fault(1, why)]


STEPS = {
    "step_100": 100, "checkpoint-200": 200, "base": 0, "300": 300, "global_step_50": 50, "400.0": 400,
    "run-7/step-20-of-100": 20, "rl-60": 60,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_step_may_be_a_name(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"any.{kind}"
    rows = [{"q": "1", "a": "1", "ok": 1.0, "ckpt": name} for name in STEPS]
    if kind == "csv":
        path.write_text("q,a,ok,ckpt\n" + "".join(f"1,1,1,{name}\n" for name in STEPS))
    elif kind == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        write_lines(path, *rows, {**rows[0], "ckpt": 400.0}, {**rows[0], "ckpt": "final"})
    fields = {"prompt": "q", "response": "a", "reward": "ok", "step": "ckpt"}
    items = read(path, fields=fields)
    assert [one.step for one in samples(items)] == [*STEPS.values(), *([400] if kind == "jsonl" else [])]
    if kind == "jsonl":
        why = "ckpt is neither a number nor a name with a step, such as checkpoint-200 or base"
        assert items[-1] == Fault(len(items), why)


@pytest.mark.parametrize("by_columns", [True, False])
def test_decimals_are_numbers(tmp_path: Path, by_columns: bool) -> None:
    cents = pa.decimal128(10, 2)
    columns = {"ok": ["1", "0.5"], "step": ["20", "40"], "gold": ["1.50", "3.00"]}
    decimals = {name: pa.array([Decimal(one) for one in column], cents) for name, column in columns.items()}
    table = pa.table({"q": ["1", "1"], "a": ["1", "1"], **decimals})
    path = tmp_path / "any.parquet"
    parquet.write_table(table, path)
    fields = {"prompt": "q", "response": "a", "reward": "ok"} | ({} if by_columns else {"step": "step", "gold": "gold"})
    read_samples = samples(read(path, fields=fields))
    assert [one.reward for one in read_samples] == [1.0, 0.5]
    if not by_columns:
        assert [(one.step, one.gold) for one in read_samples] == [(20, "1.5"), (40, "3")]


# ---------------------------------------------------------------- files that are not dumps


def test_files_without_the_response_are_of_no_known_format(tmp_path: Path) -> None:
    write_lines(tmp_path / "20.jsonl", *TWO)
    (tmp_path / "README.md").write_text("# Samples\n")
    (tmp_path / "config.json").write_text(json.dumps({"model": "m", "q": 3}, indent=2))
    write_lines(tmp_path / "metrics.jsonl", {"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25})
    (tmp_path / "aggregated.json").write_text(json.dumps([{"task": "sums", "ok": 0.5}], indent=1))
    plan = plan_import([tmp_path], ImportConfig(map=FLAT))
    assert [file.path.name for file in plan.files] == ["20.jsonl"]
    assert {path.name for path in plan.unknown} == {"config.json", "metrics.jsonl", "aggregated.json"}
    assert not plan.refused
    with pytest.raises(ConfigError, match=r"--map response=text: no record has that field"):
        plan_import(
            [tmp_path / "metrics.jsonl"], ImportConfig(map={"prompt": "step", "response": "text", "gold": "loss"})
        )
