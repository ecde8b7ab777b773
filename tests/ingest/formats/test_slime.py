"""slime is not installed here: the dumps have the fields of ``Sample.to_dict`` in slime 0.3.1."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import slime
from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Recorded
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.records.errors import ImportFileError
from tests.ingest.formats.reading import reader, samples

SAMPLE: dict[str, Any] = {
    "group_index": 0, "index": 5, "rollout_id": None, "tokens": [1, 2, 3, 4, 5], "response": "It is 2.<|im_end|>",
    "prompt": "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n", "response_length": 3, "label": "2",
    "reward": 1.0, "loss_mask": [1, 1, 1], "weight_versions": [], "rollout_log_probs": [-0.5, -0.25, -0.125],
    "rollout_top_p_token_ids": torch.tensor([1, 2], dtype=torch.int32), "remove_sample": False,
    "status": "completed", "metadata": {},
}  # fmt: skip
read = reader(slime)


def dump(path: Path, *samples: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"rollout_id": 7, "samples": list(samples)}, path)
    return path


def test_a_dump_is_recognised_unloaded_and_read(tmp_path: Path) -> None:
    path = dump(tmp_path / "rollout_data" / "7.pt", SAMPLE, SAMPLE | {"reward": 0, "status": "truncated"})
    assert slime.IMPORTER.pickled
    assert slime.recognises(path, {})
    first = Recorded(1, SAMPLE["prompt"], "It is 2.", gold="2", reward=1.0, step=7, n_tokens=3, finish_reason="stop",
                     logp_sum=-0.875)  # fmt: skip
    assert read(path) == [first, replace(first, line=2, reward=0.0, finish_reason="length")]


def test_rollouts_and_evaluations_are_series_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "dump" / "rollout_data"
    assert slime.place(folder / "7.pt") == FilePlace(run="dump train", step=7)
    assert slime.place(folder / "eval_7.pt") == FilePlace(run="dump eval", step=7)


def test_other_archives_are_not_taken_for_dumps(tmp_path: Path) -> None:
    torch.save({"model.weight": torch.zeros(2)}, tmp_path / "7.pt")
    (tmp_path / "text.pt").write_text("rollout_id")
    trained = dump(tmp_path / "train_data" / "7.pt", SAMPLE)
    assert not any(slime.recognises(path, {}) for path in (tmp_path / "7.pt", tmp_path / "text.pt", trained, tmp_path))
    with pytest.raises(ImportFileError, match=r"7.pt: this .pt file has no samples; it may be a checkpoint"):
        read(tmp_path / "7.pt")


def test_tokens_of_tools_do_not_count(tmp_path: Path) -> None:
    mixed = {"loss_mask": [1, 0, 1], "rollout_log_probs": [-0.5, 0.0, -0.125]}
    (sample,) = read(dump(tmp_path / "7.pt", SAMPLE | mixed))
    assert (sample.n_tokens, sample.logp_sum) == (2, -0.625)


def test_among_several_rewards_the_user_chooses(tmp_path: Path) -> None:
    path = dump(tmp_path / "7.pt", SAMPLE | {"reward": {"acc": 1.0, "format": 0.5}})
    with pytest.raises(ImportFileError, match=r"pass --reward with one of acc, format"):
        read(path)
    assert [one.reward for one in read(path, reward="format")] == [0.5]
    assert read(path, reward="accuracy") == [Fault(1, "no accuracy")]
    assert [one.reward for one in read(dump(tmp_path / "8.pt", SAMPLE | {"reward": {"acc": 1.0}}))] == [1.0]


def test_what_was_aborted_or_is_no_sample_is_a_fault(tmp_path: Path) -> None:
    path = dump(
        tmp_path / "7.pt",
        SAMPLE | {"status": "aborted"},
        {name: value for name, value in SAMPLE.items() if name != "status"},
        "text",
        SAMPLE | {"reward": float("nan")},
        SAMPLE | {"response_length": -1},
    )
    assert read(path) == [
        Fault(1, "its rollout is aborted"),
        Fault(2, "its rollout has no status"),
        Fault(3, "a sample that is not a dict"),
        Fault(4, "reward is NaN or infinite"),
        Fault(5, "response_length is below 0"),
    ]


def test_log_probabilities_that_do_not_match_the_tokens_are_left_out(tmp_path: Path) -> None:
    logps: tuple[Any, ...] = ([-0.5], None, [None] * 3, [float("nan")] * 3, "abc")
    items = read(dump(tmp_path / "7.pt", *[SAMPLE | {"rollout_log_probs": one} for one in logps]))
    assert [one.logp_sum for one in samples(items)] == [None] * 5


def test_a_file_that_cannot_be_loaded_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = dump(tmp_path / "7.pt", SAMPLE)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ImportFileError, match=r"7.pt: not a readable .pt file"):
        read(path)
    package = ModuleType("of_another_package")
    exec("class Adapter: pass", package.__dict__)
    monkeypatch.setitem(sys.modules, package.__name__, package)
    dump(path, SAMPLE | {"adapter": package.Adapter()})
    monkeypatch.delitem(sys.modules, package.__name__)
    with pytest.raises(ImportFileError, match=r"No module named 'of_another_package'"):
        read(path)


class Touch:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_runs_its_code_only_where_that_was_allowed(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    path = dump(tmp_path / "7.pt", SAMPLE, Touch(ran))
    with pytest.raises(ImportFileError, match="is a pickle, which can run code when it is read; pass --allow-pickle"):
        plan_import([path], ImportConfig())
    assert not ran.exists()
    plan_import([path], ImportConfig(allow_pickle=True))
    read(path)
    assert ran.exists(), "else the first half would hold of a pickle without code"


def test_a_response_with_calls_of_qwens_template_is_a_trajectory(tmp_path: Path) -> None:
    response = (
        '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call><|im_end|>\n<|im_start|>user\n'
        "<tool_response>\n2\n</tool_response><|im_end|>\n<|im_start|>assistant\nIt is 2.<|im_end|>"
    )
    (item,) = samples(read(dump(tmp_path / "rollout_data" / "7.pt", SAMPLE | {"response": response})))
    assert item.turns is not None
    assert [(turn.role, turn.text) for turn in item.turns] == [
        ("assistant", ""),
        ("tool", "2"),
        ("assistant", "It is 2."),
    ]
    assert item.turns[0].calls[0].result == 1
    assert item.response == 'add({"a": 1})\n\nIt is 2.'
