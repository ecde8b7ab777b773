"""The logs under data/inspect-0.3.285 were written by the tool itself, see ``tests/importers/real``."""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import archive, find_files, inspect_eval
from oversharp.diagnostics.ingest.formats.archive import Archive
from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Recorded
from oversharp.diagnostics.ingest.formats.inspect_eval import DAMAGED
from oversharp.diagnostics.ingest.ingest import import_samples, preview
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.records.errors import ImportFileError
from tests.ingest.formats.reading import reader, samples
from tests.ingest.formats.test_bad_input import SETTINGS, changed

pytestmark = pytest.mark.filterwarnings("ignore")  # inspect's, of its own dependencies

DATA = Path(__file__).parent / "data" / "inspect-0.3.285"
LOGS = sorted(DATA.glob("*.eval"))


read = reader(inspect_eval)


def members(path: Path) -> dict[str, Any]:
    """Return the members of the archive, without journal and events."""
    with Archive(path) as held:
        parsed = {name: json.loads(held.content(name)) for name in held.names if name[0] != "_"}
    for name, member in parsed.items():
        if name.startswith("samples/"):
            member.pop("events")
    return parsed


def archived(path: Path, parts: dict[str, Any], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as log:
        for name, part in parts.items():
            log.writestr(name, part if isinstance(part, bytes) else json.dumps(part))
    return path


def samples_of(parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [parts[f"samples/{one['id']}_epoch_{one['epoch']}.json"] for one in parts["summaries.json"]]


def edited(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """Write the first log with changed samples."""
    parts = members(LOGS[0])
    change(samples_of(parts))
    return archived(path, parts)


# ---------------------------------------------------------------- real logs


@pytest.mark.usefixtures("inspect_ai")
@pytest.mark.parametrize("log", LOGS, ids=["step 0", "step 40"])
def test_every_epoch_of_every_problem_is_read(log: Path) -> None:
    from inspect_ai.log import read_eval_log

    written = read_eval_log(str(log)).samples
    assert written is not None
    expected = {(one.id, one.epoch - 1): (one.output.completion, str(one.target)) for one in written}
    found = samples(read(log))
    assert {(one.problem, one.index): (one.response, one.gold) for one in found} == expected
    assert (len(found), len(expected)) == (12, 12)
    assert {one.prompt for one in found} == {"6 7 12 = 54 :", "1 2 3 = 6 :", "2 3 5 = 1 :"}
    for one in found:
        assert one.reward == float(str(one.gold) in one.response)  # searched by inspect's `includes`
        # this provider counts padding, and notes the likeliest tokens instead of the response's
        assert (one.n_tokens, one.logp_sum, one.finish_reason, one.greedy) == (None, None, None, False)
    assert {one.reward for one in found} == {0.0, 1.0}


def test_place_and_settings_of_real_logs() -> None:
    assert [inspect_eval.place(log) for log in LOGS] == [
        FilePlace(run="models/lucky", step=step, task="sums") for step in (0, 40)
    ]
    assert inspect_eval.settings(LOGS[0]) == {"temperature": 1.0, "top_p": 1.0, "max_tokens": 8, "seed": 7}


def test_a_scorer_can_be_chosen() -> None:
    assert {one.reward for one in read(LOGS[0], "exact")} == {0.0}
    assert read(LOGS[0], "f1") == [Fault(line, "no score of f1") for line in range(1, 13)]


@pytest.mark.parametrize("form", ["deflated", "a JSON log", "stopped"])
def test_every_form_of_a_log_holds_the_same_samples(tmp_path: Path, form: str) -> None:
    parts = members(LOGS[1])
    path = tmp_path / ("log.json" if form == "a JSON log" else "log.eval")
    if form == "a JSON log":
        order = ("version", "status", "eval", "plan", "results")
        log = {name: parts["header.json"][name] for name in order} | {"samples": samples_of(parts)}
        path.write_text(json.dumps(log, indent=2))
        (tmp_path / "results.json").write_text(json.dumps({"version": 2, "samples": []}, indent=2))
    elif form == "deflated":  # by older inspects
        archived(path, parts, zipfile.ZIP_DEFLATED)
    else:
        started = {name: parts["header.json"][name] for name in ("version", "eval", "plan")}
        of_samples = {name: part for name, part in parts.items() if name.startswith("samples/")}
        archived(path, {"_journal/start.json": started, **of_samples})
    (found,) = find_files([tmp_path]).files
    assert (found.path, found.importer.name) == (path, "inspect")
    assert inspect_eval.place(path) == inspect_eval.place(LOGS[1])
    assert inspect_eval.settings(path) == inspect_eval.settings(LOGS[1])
    whole = {(one.problem, one.index): (one.response, one.reward, one.gold) for one in samples(read(LOGS[1]))}
    assert {(one.problem, one.index): (one.response, one.reward, one.gold) for one in samples(read(path))} == whole
    assert len(whole) == 12


@pytest.mark.usefixtures("inspect_ai")
def test_a_json_log_that_inspect_wrote_is_read(tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log, write_eval_log

    path = tmp_path / "log.json"
    write_eval_log(read_eval_log(str(LOGS[0])), str(path))
    assert [found.importer.name for found in find_files([tmp_path]).files] == ["inspect"]
    key = attrgetter("problem", "index")
    said = attrgetter("prompt", "response", "gold", "reward", "answer", "finish_reason", "n_tokens")
    assert [said(one) for one in sorted(samples(read(path)), key=key)] == [
        said(one) for one in sorted(samples(read(LOGS[0])), key=key)
    ]


def test_a_member_that_unpacks_to_more_than_is_read_is_said_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_MIB", 1)
    parts = members(LOGS[0])
    first, *others = [name for name in parts if name.startswith("samples/")]
    parts[first]["x"] = "a" * (2 << 20)
    items = read(archived(tmp_path / "log.eval", parts, zipfile.ZIP_DEFLATED))
    assert sorted(one.why for one in items if isinstance(one, Fault)) == ["a sample that unpacks to more than 512 MiB"]
    assert len(samples(items)) == len(others)
    parts["header.json"]["x"] = "a" * (2 << 20)
    with pytest.raises(ImportFileError, match=r"log\.eval: header\.json unpacks to more than 1 MiB and is not read"):
        read(archived(tmp_path / "log.eval", parts, zipfile.ZIP_DEFLATED))


def test_a_log_of_a_newer_format_is_said_to_be(tmp_path: Path) -> None:
    parts = members(LOGS[0])
    parts["header.json"]["version"] = 3
    with pytest.raises(ImportFileError, match=r"log format 3 is not supported, only up to 2"):
        read(archived(tmp_path / "log.eval", parts))


# ---------------------------------------------------------------- an evaluation with planted outputs


@pytest.fixture(scope="module")
def planted(inspect_ai: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two problems, two epochs: right log-probabilities, an error, an empty response, foreign log-probabilities."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import (
        ChatMessageSystem,
        ChatMessageUser,
        Logprob,
        Logprobs,
        ModelAPI,
        ModelOutput,
        ModelUsage,
        get_model,
        modelapi,
    )
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate

    def output(text: str, tokens: list[bytes]) -> ModelOutput:
        made = ModelOutput.from_content("planted", text, stop_reason="max_tokens")
        content = [Logprob(token="?", logprob=-0.5, bytes=list(token)) for token in tokens]
        made.choices[0].logprobs = Logprobs(content=content)
        made.usage = ModelUsage(output_tokens=9)
        return made

    outputs = {
        "long " * 60: [output("café", [b"ca", b"f\xc3", b"\xa9", b"<end>"]), output("", [])],
        "Hi": [ValueError("planted"), output("six", [b"seven"])],
    }

    class Planted(ModelAPI):
        async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
            said = outputs[input[-1].text].pop(0)
            if isinstance(said, Exception):
                raise said
            return said

    modelapi(name="planted")(Planted)
    chat = [ChatMessageSystem(content="Be brief."), ChatMessageUser(content="Hi")]
    problems = [Sample(id=1, input="long " * 60, target=["café"]), Sample(id="a/b", input=chat, target=["six", "6"])]
    task = Task(dataset=MemoryDataset(problems), solver=[generate()], scorer=[includes()], name="mixed")
    [log] = eval(task, model=get_model("planted/lucky/checkpoint-7"), epochs=2, temperature=1.0, max_samples=1,
                 fail_on_error=False, display="none", log_dir=str(tmp_path_factory.mktemp("logs")))  # fmt: skip
    return Path(log.location)


def test_samples_of_a_mixed_log(planted: Path) -> None:
    by_key = {(one.problem, one.index): one for one in samples(read(planted))}
    assert by_key.keys() == {("1", 0), ("1", 1), ("a/b", 1)}
    first, empty, chat = by_key["1", 0], by_key["1", 1], by_key["a/b", 1]
    assert (first.prompt, first.response, first.gold, first.reward) == ("long " * 60, "café", "café", 1.0)
    assert (first.n_tokens, first.logp_sum, first.finish_reason) == (4, -2.0, "length")
    assert (empty.response, empty.reward, empty.logp_sum, empty.n_tokens) == ("", 0.0, None, 9)
    assert (chat.prompt, chat.response) == ("system: Be brief.\n\nuser: Hi", "six")
    assert (chat.gold, chat.logp_sum, chat.n_tokens) == (
        "six",
        None,
        9,
    )  # first gold; another text
    assert [one.why for one in read(planted) if isinstance(one, Fault)] == ["the sample ended in an error"]
    assert inspect_eval.place(planted) == FilePlace(run="lucky", step=7, task="mixed")


@pytest.mark.parametrize(
    ("config", "logp_sum", "greedy"),
    [({}, None, False), ({"temperature": 0.7}, None, False), ({"temperature": 0}, None, True),
     ({"temperature": 1, "top_p": 0.9}, None, False), ({"temperature": 1, "top_k": -1}, -2.0, False)],
)  # fmt: skip
def test_log_probabilities_count_at_temperature_1_from_the_full_vocabulary(
    planted: Path, tmp_path: Path, config: dict[str, Any], logp_sum: float | None, greedy: bool
) -> None:
    parts = members(planted)
    parts["header.json"]["plan"]["config"] = config
    parts["header.json"]["eval"]["model_generate_config"] = {}
    first = samples(read(archived(tmp_path / "log.eval", parts)))[0]
    assert (first.response, first.n_tokens, first.logp_sum, first.greedy) == ("café", 4, logp_sum, greedy)


def test_text_that_lies_among_the_attachments_is_put_in_its_place(planted: Path, tmp_path: Path) -> None:
    parts = members(planted)
    sample = parts["samples/a/b_epoch_2.json"]
    sample["attachments"] = {"a" * 32: "the long question"}
    sample["input"][1]["content"] = f"attachment://{'a' * 32}"
    assert (
        samples(read(archived(tmp_path / "log.eval", parts)))[-1].prompt
        == "system: Be brief.\n\nuser: the long question"
    )


# ---------------------------------------------------------------- scores and bad input


def test_scores_of_every_kind(tmp_path: Path) -> None:
    values = ["C", "I", "P", "N", "yes", "0.25", True, 3, math.nan, "maybe", math.inf, {"a": 1}]

    def change(of_log: list[dict[str, Any]]) -> None:
        for sample, value in zip(of_log, values, strict=True):
            sample["scores"]["includes"]["value"] = value

    items = read(edited(tmp_path / "log.eval", change))
    found = [one.reward if isinstance(one, Recorded) else one.why for one in items]
    assert found == [1.0, 0.0, 0.5, 0.0, 1.0, 0.25, 1.0, 3.0, None, "its score is text, not a number",
                     "its score is NaN or infinite", "its score has several parts"]  # fmt: skip


def test_samples_without_a_target_an_output_or_a_text_alone(tmp_path: Path) -> None:
    def change(of_log: list[dict[str, Any]]) -> None:
        of_log[0]["target"] = ""
        of_log[1]["output"]["choices"] = []
        of_log[1].pop("scores")
        parts = [{"type": "text", "text": "q"}, {"type": "image", "image": "data:,"}]
        of_log[2]["input"] = [{"role": "user", "content": parts}]
        of_log[3]["invalidation"] = {"author": "me"}
        of_log[4].pop("scores")

    items = read(edited(tmp_path / "log.eval", change))
    assert [one.gold if isinstance(one, Recorded) else one.why for one in items[:4]] == [
        None, "no output", "5", "the sample was declared invalid"]  # fmt: skip
    assert isinstance(items[2], Recorded)
    assert re.fullmatch(r"q\n\[image [0-9a-f]{8}\]", items[2].prompt)
    assert isinstance(items[4], Recorded)
    assert items[4].reward is None
    assert len(items) == 12


def test_a_damaged_sample_is_a_fault_and_the_others_are_read(tmp_path: Path) -> None:
    parts = members(LOGS[0])
    parts["samples/sum-1_epoch_2.json"] = b'{"id": "sum-1", "epo'
    parts["samples/sum-2_epoch_2.json"] = {"id": "sum-2"}
    del parts["samples/sum-0_epoch_3.json"]
    items = read(archived(tmp_path / "log.eval", parts))
    assert [one.why for one in items if isinstance(one, Fault)] == [DAMAGED] * 3
    assert len(items) == 12


def test_a_byte_that_flipped_in_a_packed_sample_costs_that_sample_alone(tmp_path: Path) -> None:
    packed = bytearray(LOGS[0].read_bytes())
    with zipfile.ZipFile(LOGS[0]) as archive:
        member = archive.getinfo("samples/sum-1_epoch_2.json")
    packed[member.header_offset + 30 + len(member.filename) + member.compress_size // 2] ^= 1
    path = tmp_path / "log.eval"
    path.write_bytes(packed)
    assert [one.why for one in read(path) if isinstance(one, Fault)] == [DAMAGED]
    assert len(samples(read(path))) == 11


@pytest.mark.parametrize("n_bytes", [0, 30, 5000, -30, -1])
def test_a_log_that_is_cut_short_is_said_to_be(tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "log.eval"
    path.write_bytes(LOGS[0].read_bytes()[:n_bytes])
    assert (inspect_eval.place(path), inspect_eval.settings(path)) == (FilePlace(), {})
    with pytest.raises(ImportFileError, match=r"log\.eval: not a readable archive \(.+\); copy it again"):
        read(path)


@pytest.mark.slow
@given(data=st.data())
@SETTINGS
def test_no_field_stops_the_reader(tmp_path: Path, data: st.DataObject) -> None:
    parts = members(LOGS[0])
    name = data.draw(st.sampled_from(["header.json", "samples/sum-1_epoch_2.json", "samples/sum-2_epoch_4.json"]))
    path = archived(tmp_path / "log.eval", {**parts, name: data.draw(changed(parts[name]))})
    inspect_eval.place(path)
    inspect_eval.settings(path)
    try:
        items = read(path)
    except ImportFileError:
        assert name == "header.json"
    else:
        assert len(items) == 12
        assert name == "header.json" or sum(isinstance(one, Recorded) for one in items) >= 11


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
@pytest.mark.parametrize("names", [("a.eval", "b.eval"), ("b.eval", "a.eval")])
def test_a_scored_log_is_read_in_place_of_its_unscored_copy(tmp_path: Path, names: tuple[str, str]) -> None:
    """The second name is that of the copy without scores."""
    parts = members(LOGS[0])
    log = archived(tmp_path / names[0], parts)
    for one in samples_of(parts):
        one["scores"] = None
    parts["header.json"]["results"]["scores"] = []
    copy = archived(tmp_path / names[1], parts)
    settings = ImportConfig(store=tmp_path / "audit.duckdb", step=0)
    line = f"{copy} not read: {log} has the same samples with their scores"
    (shown,) = preview(plan_import([tmp_path], settings), settings)
    assert (shown.notes, [one.path for one in shown.files]) == ((line,), [log])
    result = import_samples([tmp_path], settings)
    assert [(one.path, one.n_skipped) for one in result.files] == [(log, 0)]
    apart = ImportConfig(store=tmp_path / "alone.duckdb", step=0)
    assert [one.why for one in import_samples([copy], apart).files] == [None]
