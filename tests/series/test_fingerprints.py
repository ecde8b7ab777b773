"""Merged and exported weights that equal the base's, in any format, and those that differ."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.series import find_series
from oversharp.diagnostics.series.finding import current_hash
from tests.series.written_runs import (
    ADAPTER_10,
    ADAPTER_20,
    BASE,
    NAMELESS_10,
    NAMELESS_20,
    STEP_10,
    STEP_20,
    TOKENIZER,
    Files,
    change_json,
    untrain,
    write_run,
)

VERL = (
    "verl's model_merger writes the unmodified base of a LoRA run, and the trained adapter into lora_adapter/: "
    "move that "
)


def edit_weights(folder: Path, change: Callable[[torch.Tensor], torch.Tensor], **more: torch.Tensor) -> None:
    file = folder / "model.safetensors"
    save_file({name: change(tensor).contiguous() for name, tensor in load_file(file).items()} | more, file)


def head_of(folder: Path) -> torch.Tensor:
    return load_file(folder / "model.safetensors")["model.embed_tokens.weight"].clone()


@pytest.mark.parametrize("copies", ["bytes", "rounded", "tied head"])
@pytest.mark.parametrize("place", ["--base", "step 0"])
def test_merged_weights_that_equal_the_bases_are_refused(copies: str, place: str, pieces: Path, tmp_path: Path) -> None:
    files: Files = {"global_step_10/actor/huggingface": BASE, "global_step_20/actor/huggingface": STEP_20}
    if place == "step 0":
        files["global_step_0/actor/huggingface"] = BASE
    run = write_run(tmp_path / "run", files, pieces)
    merged = run / "global_step_10/actor/huggingface"
    if copies == "rounded":
        edit_weights(merged, lambda tensor: tensor.bfloat16())
    elif copies == "tied head":
        edit_weights(merged, lambda tensor: tensor, **{"lm_head.weight": head_of(merged)})
    with pytest.raises(CheckpointError) as caught:
        find_series([run], base=pieces / "base" if place == "--base" else None)
    first = "base" if place == "--base" else "global_step_0"
    assert str(caught.value).startswith(f"{first} and global_step_10 have the same weights")
    assert str(caught.value).endswith(f"{VERL}folder into {merged}, or merge again, or exclude the checkpoint")


def test_equal_steps_of_another_trainer_are_a_warning(pieces: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"global_step10_hf": STEP_10, "global_step20_hf": STEP_10}, pieces)
    series = find_series([run])
    assert [checkpoint.repeats for checkpoint in series.checkpoints] == [False, True]
    assert series.notes[0].startswith("warning: global_step20_hf has the same weights as global_step10_hf: training ")


@pytest.mark.parametrize("change", ["training below the base's rounding", "one weight"])
def test_weights_that_differ_by_more_than_their_format_are_a_series(change: str, pieces: Path, tmp_path: Path) -> None:
    """Float32 weights may have moved by less than the steps of a bfloat16 base."""
    run = write_run(tmp_path / "run", {"checkpoint-0": BASE, "checkpoint-10": BASE}, pieces)
    if change == "one weight":
        edit_weights(run / "checkpoint-10", lambda tensor: tensor.bfloat16())
        norm = load_file(run / "checkpoint-10/model.safetensors")["model.norm.weight"]
        norm[-1] += 0.5
        edit_weights(run / "checkpoint-10", lambda tensor: tensor, **{"model.norm.weight": norm})
    else:
        edit_weights(run / "checkpoint-0", lambda tensor: tensor.bfloat16())
        edit_weights(run / "checkpoint-10", lambda tensor: tensor.bfloat16().float() * (1 + 1e-4))
        base, moved = (load_file(run / folder / "model.safetensors") for folder in ("checkpoint-0", "checkpoint-10"))
        assert all(torch.equal(moved[name].bfloat16(), tensor) for name, tensor in base.items())
    assert len(find_series([run]).checkpoints) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_rounding_equals_that_of_torch(dtype: torch.dtype, pieces: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"checkpoint-0": BASE, "checkpoint-10": BASE}, pieces)
    ties = torch.tensor([1.00390625, 1.01171875, -1.00390625, 3e38, 1e-40, 0.0, 65520.0])  # halfway, huge, subnormal
    for folder in ("checkpoint-0", "checkpoint-10"):
        edit_weights(run / folder, lambda tensor: tensor, ties=ties)
    edit_weights(run / "checkpoint-10", lambda tensor: tensor.to(dtype))
    series = find_series([run])
    assert series.notes[0].startswith("warning: checkpoint-10 has the same weights as checkpoint-0: ")
    assert not any(checkpoint.repeats for checkpoint in series.checkpoints)  # other bytes have another hash already


def test_an_untrained_adapter_is_a_warning_and_a_scale_of_zero_is_refused(pieces: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"checkpoint-10": ADAPTER_10, "checkpoint-20": ADAPTER_20}, pieces)
    change_json(run / "checkpoint-10/adapter_config.json", lora_alpha=0)
    with pytest.raises(CheckpointError, match=r"checkpoint-10: lora_alpha is 0 in .*; write the run's lora_alpha"):
        find_series([run])
    change_json(run / "checkpoint-10/adapter_config.json", lora_alpha=4)
    file = run / "checkpoint-20/adapter_model.safetensors"
    save_file({name: tensor * 0 if "lora_B" in name else tensor for name, tensor in load_file(file).items()}, file)
    assert find_series([run]).notes[0].startswith("warning: checkpoint-20 has the same weights as base: ")


def test_an_untrained_adapter_as_base_is_the_model_under_it(pieces: Path, tmp_path: Path) -> None:
    """The first factors have no effect, so runs with other seeds share the samples of their base."""
    series = []
    for seed in (0, 1):
        run = write_run(tmp_path / f"{seed}/run", {"checkpoint-0": ADAPTER_10, "checkpoint-20": ADAPTER_20}, pieces)
        file = run / "checkpoint-0/adapter_model.safetensors"
        tensors = load_file(file).items()
        save_file({name: 0 * tensor if "lora_B" in name else tensor + seed for name, tensor in tensors}, file)
        series.append(find_series([run]).checkpoints)
    model = find_series([tmp_path / "0/run/checkpoint-20"], base=pieces / "base").checkpoints[0]
    for base, _ in series:
        assert (base.label, base.step, base.kind, base.base_path) == ("checkpoint-0", 0, "full", None)
        assert (base.path.resolve(), base.weights_hash) == (model.path.resolve(), model.weights_hash)
        assert current_hash(base) == model.weights_hash
        assert (base.trained.kind, base.trained.path.name) == ("lora", "checkpoint-0")
    assert series[0][0].trained.weights_hash != series[1][0].trained.weights_hash
    for _, trained in series:
        assert trained.kind == "lora"
        assert trained.trained is trained
    save_file(load_file(tmp_path / "0/run/checkpoint-20/adapter_model.safetensors"), file)
    change_json(tmp_path / "1/run/checkpoint-0/adapter_config.json", lora_alpha=2)
    assert find_series([tmp_path / "1/run"]).checkpoints[0].kind == "lora"


def test_the_log_of_an_untrained_adapters_model_is_ignored(pieces: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"checkpoint-0": ADAPTER_10, "checkpoint-20": ADAPTER_20}, pieces)
    untrain(run / "checkpoint-0")
    log = json.dumps({"log_history": [{"step": 7, "loss": 1.5}]})
    model = find_series([run]).base.path
    (model / "trainer_state.json").write_text(log)  # as after a warm start
    try:
        assert find_series([run]).metrics == ()
        write_run(run, {"checkpoint-0/trainer_state.json": log.replace("1.5", "0.5")}, pieces)
        assert [metric.value for metric in find_series([run]).metrics] == [0.5]
    finally:
        (model / "trainer_state.json").unlink()


@pytest.mark.parametrize(
    "changed",
    [
        {"checkpoint-0/chat_template.jinja": "{{ messages }}"},
        {"checkpoint-0/special_tokens_map.json": "{}"},
        {"checkpoint-0/added_tokens.json": '{"<pad>": 99}'},
    ],
)
def test_an_untrained_adapter_with_another_tokenizer_stays_the_base(
    changed: Files, pieces: Path, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", {"checkpoint-0": ADAPTER_10, "checkpoint-20": ADAPTER_20}, pieces)
    write_run(run, {"checkpoint-0": TOKENIZER}, pieces)
    untrain(run / "checkpoint-0")
    assert find_series([run]).base.kind == "full"
    write_run(run, changed, pieces)
    assert find_series([run]).base.kind == "lora"


def test_a_tokenizer_that_was_loaded_and_saved_next_to_an_adapter_equals_the_models(
    pieces: Path, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", {"checkpoint-0": ADAPTER_10, "checkpoint-20": ADAPTER_20}, pieces)
    untrain(run / "checkpoint-0")
    under = find_series([run]).base.path
    AutoTokenizer.from_pretrained(under).save_pretrained(run / "checkpoint-0")
    own, models = ((folder / "tokenizer_config.json").read_bytes() for folder in (run / "checkpoint-0", under))
    assert own != models  # the library saves the path
    assert find_series([run]).base.kind == "full"
    change_json(run / "checkpoint-0/tokenizer_config.json", eos_token="?")
    assert find_series([run]).base.kind == "lora"


@pytest.mark.parametrize(
    ("model_config", "fault"),
    [
        ({"num_hidden_layers": 1}, r"changes layer \d+, beyond the 1 layers of \S+/base"),
        ({"hidden_size": 24}, r"is for hidden size \d+, not the 24 of \S+/base"),
    ],
)
def test_an_adapter_of_another_model_is_refused_by_its_files(
    model_config: dict[str, int], fault: str, pieces: Path, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", {"checkpoint-10": NAMELESS_10, "checkpoint-20": NAMELESS_20}, pieces)
    base = shutil.copytree(pieces / "base", tmp_path / "base")
    assert len(find_series([run], base=base).checkpoints) == 3
    change_json(base / "config.json", **model_config)
    with pytest.raises(
        CheckpointError, match=rf"^checkpoint-10: its adapter {fault}, so .* set that model as base_mod"
    ):
        find_series([run], base=base)


def test_adapters_on_one_model_and_another_as_base_are_refused(pieces: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"checkpoint-10": ADAPTER_10, "checkpoint-20": ADAPTER_20}, pieces)
    with pytest.raises(CheckpointError, match=r"^checkpoint-10: is an adapter of \S+/base, but --base \S+ has other"):
        find_series([run], base=pieces / "step_10")
    copy = shutil.copytree(pieces / "base", tmp_path / "copy")
    assert len(find_series([run], base=copy).checkpoints) == 3


def test_an_untrained_adapter_that_repeats_layers_stays_the_base(pieces: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"checkpoint-0": ADAPTER_10, "checkpoint-20": ADAPTER_20}, pieces)
    untrain(run / "checkpoint-0")
    change_json(run / "checkpoint-0/adapter_config.json", layer_replication=[[0, 1], [0, 1]])
    assert find_series([run]).base.kind == "lora"
