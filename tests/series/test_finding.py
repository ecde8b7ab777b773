"""Find series, complete and faulty, in real files on disk, written with the safetensors library."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.records.types import Series, TrainingMetric
from oversharp.diagnostics.series import find_series


def write_checkpoint(folder: Path, seed: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    save_file({"w": np.random.default_rng(seed).normal(size=(3, 4))}, folder / "model.safetensors")
    write_tokenizer(folder, {"<pad>": 0, "a": 1})
    return folder


def write_tokenizer(folder: Path, vocabulary: dict[str, int]) -> None:
    content = {"added_tokens": [{"id": 0, "content": "<pad>"}], "model": {"type": "WordLevel", "vocab": vocabulary}}
    (folder / "tokenizer.json").write_text(json.dumps(content))


def write_adapter(folder: Path, seed: int, model: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": model}))
    save_file({"lora_A": np.random.default_rng(seed).normal(size=(2, 2))}, folder / "adapter_model.safetensors")
    return folder


def write_run(run: Path, *names: str) -> Path:
    for seed, name in enumerate(names):
        write_checkpoint(run / name, seed)
    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run with checkpoints of steps 0, 20 and 40."""
    return write_run(tmp_path / "run", "checkpoint-0", "checkpoint-20", "checkpoint-40")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Return a model outside the run."""
    return write_checkpoint(tmp_path / "base", seed=9)


def steps_of(series: Series) -> list[int]:
    return [checkpoint.step for checkpoint in series.checkpoints]


def hashes_of(series: Series) -> list[str]:
    return [checkpoint.weights_hash for checkpoint in series.checkpoints]


def labels_of(series: Series) -> list[tuple[int, str]]:
    return [(checkpoint.step, checkpoint.label) for checkpoint in series.checkpoints]


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


# ---------------------------------------------------------------- folders and steps


def test_steps_are_sorted_as_numbers_and_the_lowest_is_the_base(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "checkpoint-100", "checkpoint-20", "checkpoint-9")
    series = find_series([run])
    assert steps_of(series) == [9, 20, 100]
    assert series.base.label == "checkpoint-9"
    assert (series.name, series.path, series.layout, series.skipped) == ("run", run.resolve(), "hf", ())


@pytest.mark.parametrize("pattern", ["step_{}", "step-{}", "global_step_{}", "global_step{}_hf", "my-model-{}", "{}"])
def test_usual_names_of_steps_are_parsed(tmp_path: Path, pattern: str) -> None:
    run = write_run(tmp_path / "run", *(pattern.format(step) for step in (5, 10)))
    assert steps_of(find_series([run])) == [5, 10]


def test_a_step_before_further_words_is_parsed_and_one_at_the_end_preferred(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "step-0-base", "step-160-late")
    assert labels_of(find_series([run])) == [(0, "step-0-base"), (160, "step-160-late")]
    assert labels_of(find_series([run / "step-160-late", run / "step-0-base"])) == labels_of(find_series([run]))
    write_checkpoint(run / "step-160", 7)
    assert labels_of(find_series([run])) == [(0, "step-0-base"), (160, "step-160")]


def test_links_to_another_step_and_dangling_links_are_skipped_and_listed(run: Path) -> None:
    whole = find_series([run])
    last = whole.checkpoints[-1].path
    (run / "checkpoint-5").symlink_to(last.name)
    (run / "checkpoint-7").symlink_to("gone")
    found = find_series([run])
    assert labels_of(found) == labels_of(whole)
    assert [checkpoint.path for checkpoint in found.checkpoints] == [
        checkpoint.path for checkpoint in whole.checkpoints
    ]
    assert set(found.skipped) == {
        f"checkpoint-5: is a link to {last.name}, which is in the series",
        "checkpoint-7: is a link to gone, which does not exist",
    }


def test_two_links_to_a_folder_elsewhere_are_refused(run: Path, other: Path) -> None:
    for name in ("checkpoint-1", "checkpoint-7"):
        (run / name).symlink_to(other)
    with pytest.raises(CheckpointError, match="checkpoint-7 are links to the same folder"):
        find_series([run])
    (run / "checkpoint-7").unlink()
    assert 1 in steps_of(find_series([run]))


def test_folders_that_are_no_checkpoints_are_ignored(run: Path) -> None:
    (run / "rollouts-2024").mkdir()
    (run / "state").mkdir()
    series = find_series([run])
    assert (steps_of(series), series.skipped) == ([0, 20, 40], ())


def test_the_final_model_next_to_its_checkpoints_is_ignored(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", ".", "checkpoint-10", "checkpoint-20")
    assert steps_of(find_series([run])) == [10, 20]


def test_a_list_and_a_glob_find_the_same_series_as_the_directory(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "step_0", "step_7")
    (run / "state").mkdir()
    whole = find_series([run])
    for paths in ([run / "step_7", run / "step_0"], [str(run / "step_*")], [str(run / "*")], [run, run / "step_7"]):
        assert find_series(paths) == whole


def test_listed_models_without_steps_keep_the_order_they_were_listed_in(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "zero", "middle", "end")
    series = find_series([run / "zero", run / "middle", run / "end"])
    assert labels_of(series) == [(0, "zero"), (1, "middle"), (2, "end")]


@pytest.mark.parametrize(
    ("name", "label"), [("checkpoint-1200", "checkpoint-1200"), ("checkpoint-40", "sft/checkpoint-40")]
)
def test_the_base_option_comes_first_as_step_zero_with_a_unique_label(tmp_path: Path, name: str, label: str) -> None:
    run = write_run(tmp_path / "run", "checkpoint-20", "checkpoint-40")
    base = write_checkpoint(tmp_path / "sft" / name, seed=9)
    series = find_series([run], base=base)
    assert steps_of(series) == [0, 20, 40]
    assert (series.base.path, series.base.label) == (base, label)


def test_one_checkpoint_and_a_base_are_a_series(tmp_path: Path, other: Path) -> None:
    trained = write_checkpoint(tmp_path / "trained", seed=1)
    assert labels_of(find_series([trained], base=other)) == [(0, "base"), (1, "trained")]


def test_a_base_equal_to_step_zero_changes_nothing(tmp_path: Path, run: Path) -> None:
    assert find_series([run], base=write_checkpoint(tmp_path / "base", seed=0)) == find_series([run])


def test_a_model_nested_inside_its_step_is_found(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "global_step_5/actor/huggingface", "global_step_10/actor/huggingface")
    series = find_series([run])
    assert labels_of(series) == [(5, "global_step_5"), (10, "global_step_10")]
    assert series.base.path == run / "global_step_5/actor/huggingface"
    assert find_series([str(run / "*/actor/huggingface")]).checkpoints == series.checkpoints


# ---------------------------------------------------------------- weights


def test_the_hash_covers_tensors_not_files(tmp_path: Path, run: Path) -> None:
    before = find_series([run]).base.weights_hash
    first = np.random.default_rng(0).normal(size=(3, 4))
    whole, sharded = (write_run(tmp_path / name, "checkpoint-0", "checkpoint-20") for name in ("whole", "sharded"))
    save_file({"a": first, "b": first + 1}, whole / "checkpoint-0/model.safetensors")
    (sharded / "checkpoint-0/model.safetensors").unlink()
    save_file({"b": first + 1}, sharded / "checkpoint-0/m-1.safetensors", metadata={"format": "pt"})
    save_file({"a": first}, sharded / "checkpoint-0/m-2.safetensors")
    index = {"weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors"}}
    (sharded / "checkpoint-0/model.safetensors.index.json").write_text(json.dumps(index))
    assert find_series([whole]).base.weights_hash == find_series([sharded]).base.weights_hash != before
    assert len(before) == 16


def test_equal_bytes_with_another_name_or_shape_are_other_weights(run: Path) -> None:
    tensor = np.arange(6.0)
    for step, tensors in {0: {"a": tensor}, 20: {"b": tensor}, 40: {"a": tensor.reshape(2, 3)}}.items():
        save_file(tensors, run / f"checkpoint-{step}/model.safetensors")
    assert len({checkpoint.weights_hash for checkpoint in find_series([run]).checkpoints}) == 3


def reshard(folder: Path, n_shards: int, *, without: int | None = None, prefix: str = "") -> None:
    """Write the weights of a checkpoint into shards without an index."""
    tensors = {f"{prefix}{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    (folder / "model.safetensors").unlink()
    for number in range(1, n_shards + 1):
        if number != without:
            own = {name: tensors[name] for name in sorted(tensors)[number - 1 :: n_shards]}
            save_file(own, folder / f"model-{number:05}-of-{n_shards:05}.safetensors")


def test_shards_without_an_index_are_read_with_a_note(run: Path) -> None:
    whole = find_series([run])
    reshard(run / "checkpoint-20", 2)
    series = find_series([run])
    assert hashes_of(series) == hashes_of(whole)
    assert series.notes == (
        "checkpoint-20: the shards have no model.safetensors.index.json; tensors are located by the shards' headers",
    )


def test_missing_shards_without_an_index_are_named(run: Path) -> None:
    reshard(run / "checkpoint-20", 3, without=2)
    shutil.copy(run / "checkpoint-40/model.safetensors", run / "checkpoint-40/model-00001-of-00002.safetensors")
    reshard(run / "checkpoint-40", 1)
    write_checkpoint(run / "checkpoint-60", 6)
    assert find_series([run]).skipped == (
        "checkpoint-20: model-00002-of-00003.safetensors missing: 2 of 3 shards, no model.safetensors.index.json; copy "
        "the missing shards, or save the model again",
        "checkpoint-40: shards of several saves (of 1 and of 2 files) without model.safetensors.index.json; remove "
        "those of earlier saves",
    )


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "base_model.model.", "module._orig_mod.base_model.model."])
def test_prefixes_of_a_training_run_are_removed_with_a_note(run: Path, prefix: str) -> None:
    whole = find_series([run])
    reshard(run / "checkpoint-20", 1, prefix=prefix)
    series = find_series([run])
    assert hashes_of(series) == hashes_of(whole)
    assert series.notes[0] == f"checkpoint-20: the prefix {prefix} is removed from the tensor names"


def test_a_tensor_with_and_without_a_prefix_is_refused(run: Path) -> None:
    save_file({"w": np.ones(2), "module.w": np.zeros(2)}, run / "checkpoint-20/model.safetensors")
    assert find_series([run]).skipped == (
        "checkpoint-20: model.safetensors has w with and without the prefix module.; save the model again from the "
        "unwrapped model",
    )


def test_an_adapter_that_is_not_merged_is_refused(run: Path) -> None:
    names = ("base_model.model.q_proj.base_layer.weight", "base_model.model.q_proj.lora_A.weight")
    save_file(dict.fromkeys(names, np.ones(2)), run / "checkpoint-20/model.safetensors")
    (reason,) = find_series([run]).skipped
    assert reason.startswith("checkpoint-20: contains an adapter that is not merged (q_proj.base_layer.weight); save")


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_that_the_model_would_ignore_is_refused(run: Path, tied: bool) -> None:
    embeddings = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    for step, head in {20: embeddings + 1, 40: embeddings}.items():
        (run / f"checkpoint-{step}/config.json").write_text(json.dumps({"tie_word_embeddings": tied}))
        tensors = {"model.embed_tokens.weight": embeddings, "lm_head.weight": head}
        save_file(tensors, run / f"checkpoint-{step}/model.safetensors")
    series = find_series([run])
    assert steps_of(series) == ([0, 40] if tied else [0, 20, 40])
    assert [reason[:74] for reason in series.skipped] == (
        ["checkpoint-20: config.json ties the output head to the embeddings (tie_wor"] if tied else []
    )


def test_older_bin_weights_are_accepted(run: Path) -> None:
    for step in (0, 20, 40):
        (run / f"checkpoint-{step}/model.safetensors").unlink()
        (run / f"checkpoint-{step}/pytorch_model.bin").write_bytes(bytes([step]))
    assert len({checkpoint.weights_hash for checkpoint in find_series([run]).checkpoints}) == 3


def test_steps_with_equal_weights_get_separate_samples(run: Path) -> None:
    shutil.copy(run / "checkpoint-0/model.safetensors", run / "checkpoint-40/model.safetensors")
    series = find_series([run])
    base, _, late = series.checkpoints
    assert (late.weights_hash, late.checkpoint_id) == (base.checkpoint_id, f"{base.checkpoint_id}-40")
    assert len(series.notes) == 1
    assert series.notes[0].startswith("warning: checkpoint-40 has the same weights as checkpoint-0: training changed")


# ---------------------------------------------------------------- adapters


def test_the_model_of_adapters_is_step_zero(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "model", seed=0)
    run = tmp_path / "run"
    adapters = [write_adapter(run / f"checkpoint-{step}", step, "../../model") for step in (10, 20)]
    series = find_series([run])
    assert series.layout == "hf"
    kinds = [(checkpoint.step, checkpoint.kind) for checkpoint in series.checkpoints]
    assert kinds == [(0, "full"), (10, "lora"), (20, "lora")]
    assert series.base.path.resolve() == model
    assert [checkpoint.path for checkpoint in series.checkpoints[1:]] == adapters


@pytest.mark.parametrize("changed", ["model", "scale"])
def test_the_hash_of_an_adapter_depends_on_its_model_and_its_scale(tmp_path: Path, changed: str) -> None:
    hashes = set()
    for number in (1, 2):
        model = write_checkpoint(tmp_path / f"{number}/model", number if changed == "model" else 0)
        adapter = write_adapter(tmp_path / f"{number}/run/checkpoint-10", 10, str(model))
        if changed == "scale":
            config = {"base_model_name_or_path": str(model), "r": 2, "lora_alpha": 8 * number}
            (adapter / "adapter_config.json").write_text(json.dumps(config))
        hashes.add(find_series([adapter.parent]).checkpoints[-1].weights_hash)
    assert len(hashes) == 2


def test_an_adapter_whose_model_is_missing_needs_the_base_option(tmp_path: Path, other: Path) -> None:
    run = tmp_path / "run"
    write_adapter(run / "checkpoint-10", 10, "/gone/model")
    with pytest.raises(CheckpointError, match=r"checkpoint-10: is an adapter of /gone/model, .* as --base"):
        find_series([run])
    assert find_series([run], base=other).checkpoints[1].base_path == other


def test_an_adapter_at_step_zero_is_the_base(tmp_path: Path, other: Path) -> None:
    for step in (0, 10):
        write_adapter(tmp_path / f"run/checkpoint-{step}", step, str(other))
    series = find_series([tmp_path / "run"], base=other)
    assert [checkpoint.kind for checkpoint in series.checkpoints] == ["lora", "lora"]


# ---------------------------------------------------------------- metrics


def test_the_trainers_log_is_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "checkpoint-1", "checkpoint-2")
    log = [{"step": 1, "reward": 0.5, "note": "x", "bad": float("nan")}, {"step": 2, "reward": 1, "done": True}]
    for step in (1, 2):
        state = {"global_step": step, "log_history": log[:step]}
        (run / f"checkpoint-{step}/trainer_state.json").write_text(json.dumps(state))
    series = find_series([run])
    assert series.layout == "trl"
    assert series.metrics == (
        TrainingMetric(step=1, name="reward", value=0.5),
        TrainingMetric(step=2, name="reward", value=1.0),
    )


def test_metrics_of_a_run_directory_are_read_without_an_unfinished_line(run: Path) -> None:
    (run / "metrics.jsonl").write_text('{"step": 1, "reward": 0.1}\n{"step": 1, "reward": 0.2}\n{"step": 2, "rew')
    series = find_series([run])
    assert (series.layout, series.skipped) == ("oversharp", ())
    assert series.metrics == (TrainingMetric(step=1, name="reward", value=0.2),)


def test_a_series_with_an_unreadable_log_only_lacks_metrics(run: Path) -> None:
    (run / "metrics.jsonl").write_text('{"step": 1\n{"step": 2, "reward": 1}\n')
    series = find_series([run])
    assert (len(series.checkpoints), series.metrics) == (3, ())
    assert "line 1 is not JSON" in series.skipped[0]


def test_a_number_out_of_range_is_skipped_and_a_log_with_a_step_out_of_range_left_out(run: Path) -> None:
    log = [{"step": 1, "reward": 0.5, "huge": 10**400}]
    (run / "checkpoint-40/trainer_state.json").write_text(json.dumps({"log_history": log}))
    (run / "metrics.jsonl").write_text(json.dumps({"step": 10**400, "reward": 1}) + "\n")
    series = find_series([run])
    assert series.metrics == (TrainingMetric(step=1, name="reward", value=0.5),)
    assert [reason for reason in series.skipped if "a step is out of range" in reason] == list(series.skipped) != []


# ---------------------------------------------------------------- faults


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TWO_SHARDS = json.dumps({"weight_map": {"w": WEIGHTS, "v": "model-2.safetensors"}}).encode()
#: File, its new content (None: deleted; a number: truncated to that many bytes), reason in the series.
HALF_WRITTEN: list[tuple[str, bytes | int | None, str]] = [
    ("config.json", None, "config.json missing"),
    ("config.json", b'{"model_ty', "config.json is not readable JSON"),
    (WEIGHTS, None, "model.safetensors missing"),
    (WEIGHTS, 160, "model.safetensors is truncated (160 of 168 bytes)"),
    (WEIGHTS, 20, "model.safetensors is truncated inside its header (20 bytes)"),
    (WEIGHTS, 0, "model.safetensors is not a safetensors file (0 bytes)"),
    (INDEX, TWO_SHARDS, "model-2.safetensors missing of the 2 shards in model.safetensors.index.json"),
]


@pytest.mark.parametrize(("file", "content", "reason"), HALF_WRITTEN, ids=[reason for _, _, reason in HALF_WRITTEN])
def test_an_incomplete_checkpoint_is_skipped_and_listed(
    run: Path, file: str, content: bytes | int | None, reason: str
) -> None:
    broken = run / "checkpoint-40" / file
    if content is None:
        broken.unlink()
    else:
        broken.write_bytes(broken.read_bytes()[:content] if isinstance(content, int) else content)
    series = find_series([run])
    assert (steps_of(series), series.skipped) == ([0, 20], (f"checkpoint-40: {reason}",))


@pytest.mark.parametrize(
    ("weight_map", "fault"),
    [
        ({"w": 5}, "lists a shard that is not a file name"),
        ({"w": ["a"], "v": "b"}, "lists a shard that is not a file name"),
        (5, "lists no shard"),
        (["model.safetensors"], "lists no shard"),
    ],
)
def test_a_checkpoint_with_an_invalid_index_is_skipped_and_listed(run: Path, weight_map: object, fault: str) -> None:
    (run / "checkpoint-40" / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert find_series([run]).skipped == (f"checkpoint-40: model.safetensors.index.json {fault}",)


@pytest.mark.parametrize("offsets", [[0.0, 8.0], [-8, 8], [8, 0], [False, True], [0], [0, 8, 16], "ab", None])
def test_a_checkpoint_with_invalid_offsets_is_skipped_and_listed(run: Path, offsets: object) -> None:
    header = json.dumps({"w": {"dtype": "F64", "shape": [1], "data_offsets": offsets}}).encode()
    (run / "checkpoint-40" / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    assert find_series([run]).skipped == ("checkpoint-40: model.safetensors has a broken header",)


def test_a_checkpoint_with_too_deeply_nested_json_is_skipped(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "checkpoint-0", "checkpoint-20", "checkpoint-40", "checkpoint-60")
    deep = b"[" * 100_000
    (run / "checkpoint-40" / WEIGHTS).write_bytes(len(deep).to_bytes(8, "little") + deep)
    (run / "checkpoint-60/config.json").write_bytes(deep)
    (run / "metrics.jsonl").write_bytes(deep + b"\n")
    series = find_series([run])
    assert steps_of(series) == [0, 20]
    assert [why.partition(":")[0] for why in series.skipped] == ["checkpoint-40", "checkpoint-60", "metrics.jsonl"]


@pytest.mark.parametrize("name", ["tmp-checkpoint-60", "tmp_step_60", "checkpoint-60.incomplete", ".checkpoint-60"])
def test_a_temporary_name_is_a_checkpoint_still_being_written(run: Path, name: str) -> None:
    write_checkpoint(run / name, seed=60)
    series = find_series([run])
    assert (steps_of(series), series.skipped) == (
        [0, 20, 40],
        (f"{name}: is still being written, judging by its name",),
    )


def test_only_temporary_names_are_no_series(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "tmp_step_20", "tmp_step_40")
    for given in (run, str(run / "tmp_*")):
        with pytest.raises(CheckpointError, match="no checkpoint can be read: tmp_step_20: is still being written"):
            find_series([given])


def test_a_broken_base_stops_the_audit(run: Path, other: Path) -> None:
    truncate(run / "checkpoint-0" / WEIGHTS)
    with pytest.raises(CheckpointError, match=r"0: model.safetensors is truncated .* restore it or pass --base"):
        find_series([run])
    assert steps_of(find_series([run], base=other)) == [0, 20, 40]
    truncate(other / WEIGHTS)
    with pytest.raises(CheckpointError, match=r"base: model.safetensors is truncated"):
        find_series([run], base=other)
    with pytest.raises(CheckpointError, match=r"--base .*nowhere: no such directory"):
        find_series([run], base=run / "nowhere")


def test_one_complete_checkpoint_among_broken_ones_is_no_series(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "checkpoint-0", "checkpoint-20")
    truncate(run / "checkpoint-20" / WEIGHTS)
    with pytest.raises(CheckpointError, match=r"only one checkpoint can be read, .*; left out: .*-20: .*truncated"):
        find_series([run])


def test_a_single_checkpoint_is_no_series(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "checkpoint-40", seed=0)
    with pytest.raises(CheckpointError, match=r"checkpoint-40: only one checkpoint .* or --base PATH$"):
        find_series([path])
    with pytest.raises(CheckpointError, match="only one checkpoint"):
        find_series([path], base=path)


def test_the_error_for_a_directory_without_checkpoints_lists_the_expected_names(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with pytest.raises(CheckpointError, match=r"no checkpoints here; expected checkpoint-N, step_N"):
        find_series([tmp_path])


def test_the_error_for_a_parent_directory_gives_the_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "outputs" / "run", "checkpoint-0", "checkpoint-20")
    with pytest.raises(CheckpointError, match=f"pass {run}, which contains checkpoints"):
        find_series([tmp_path / "outputs"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [("gone", "does not exist"), ("gone-*", "matches no directory"), ("file", "is a file"),
     ("x" * 300, r"cannot be read \(File name too long\)")],
    ids=["gone", "glob", "file", "long"],
)  # fmt: skip
def test_a_path_that_is_no_directory_is_an_error(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=reason):
        find_series([str(tmp_path / name)])


def test_two_checkpoints_with_the_same_step_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "checkpoint-20", "other/checkpoint-20", "checkpoint-40")
    with pytest.raises(
        CheckpointError, match=r"two checkpoints have step 20: .*run/checkpoint-20 and .*other/checkpoint-20"
    ):
        find_series([run, run / "other/checkpoint-20"])


def test_a_checkpoint_without_a_step_among_others_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "final", "checkpoint-20")
    with pytest.raises(CheckpointError, match=r"final: its step is unknown"):
        find_series([run / "final", run / "checkpoint-20"])


def test_two_different_bases_are_refused(run: Path, other: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"two bases: --base {other} and {run}/checkpoint-0"):
        find_series([run], base=other)


def test_a_checkpoint_without_a_tokenizer_is_skipped_and_a_base_without_one_is_refused(run: Path) -> None:
    (run / "checkpoint-20/tokenizer.json").unlink()
    found = find_series([run])
    assert steps_of(found) == [0, 40]
    assert found.skipped[0].startswith("checkpoint-20: tokenizer.json missing")
    (run / "checkpoint-0/tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"checkpoint-0: tokenizer.json missing .* copy the tokenizer files"):
        find_series([run])


def test_quantised_weights_are_skipped_unless_the_config_has_the_quantisation(run: Path) -> None:
    folder = run / "checkpoint-20"
    save_file({"a.weight": np.ones((2, 2), dtype=np.int8), "ids": np.arange(3)}, folder / "model.safetensors")
    found = find_series([run])
    assert steps_of(found) == [0, 40]
    assert found.skipped == (
        "checkpoint-20: a.weight in model.safetensors is I8, but config.json has no quantization_config; write the "
        "weights as BF16, F16 or F32",
    )
    (folder / "config.json").write_text('{"model_type": "qwen3", "quantization_config": {"quant_method": "gptq"}}')
    assert steps_of(find_series([run])) == [0, 20, 40]


def test_a_shard_outside_of_its_checkpoint_is_not_followed(run: Path) -> None:
    folder = run / "checkpoint-20"
    (folder / "model.safetensors").rename(run / "elsewhere.safetensors")
    index = {"weight_map": {"w": "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found = find_series([run])
    assert found.skipped == (
        "checkpoint-20: model.safetensors.index.json lists a shard outside of the checkpoint: ../elsewhere.safetensors",
    )


def test_another_vocabulary_is_refused_and_other_padding_accepted(run: Path) -> None:
    file = run / "checkpoint-20/tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"padding": {"strategy": "BatchLongest"}}))
    assert steps_of(find_series([run])) == [0, 20, 40]
    write_tokenizer(run / "checkpoint-40", {"<pad>": 0, "b": 1})
    with pytest.raises(CheckpointError, match="checkpoint-0 and checkpoint-40 have different vocabularies"):
        find_series([run])
