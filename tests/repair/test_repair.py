"""Weights between base and checkpoint follow the formula, in folders that an audit accepts."""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

import oversharp
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.records.errors import ConfigError, OversharpError
from oversharp.diagnostics.repair import tensor_files
from oversharp.diagnostics.repair.folders import require_space
from oversharp.diagnostics.series import find_series
from tests.samplers.tiny_models import build_model, build_tokenizer, write_adapter, write_model, write_tied
from tests.series.written_runs import change_json, untrain

HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"
TOKENS = torch.tensor([[2, 3, 4, 5]])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return runs with random weights, full and LoRA. Do not write into them."""
    root = tmp_path_factory.mktemp("written")
    for step in (0, 10, 20):
        write_model(build_model(step).bfloat16(), root / f"full/checkpoint-{step}")
    for step in (10, 20):
        write_adapter(root / f"lora/checkpoint-{step}", root / "full/checkpoint-0", step)
    return root


@pytest.fixture
def run(written: Path, tmp_path: Path) -> Path:
    """Return a copy of the full run."""
    return shutil.copytree(written / "full", tmp_path / "run")


@pytest.fixture
def adapters(written: Path, tmp_path: Path) -> Path:
    """Return a copy of the LoRA run."""
    return shutil.copytree(written / "lora", tmp_path / "adapters")


def tensors_of(folder: Path) -> dict[str, Tensor]:
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def steps_of(folder: Path) -> list[int]:
    return [checkpoint.step for checkpoint in find_series([folder]).checkpoints]


def edit(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], name: str = "model") -> None:
    file = folder / f"{name}.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def without(name: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name}


def mix_by_hand(base: Path, others: list[Path], lambda_: float) -> dict[str, Tensor]:
    """Return base + λ · (mean − base) in float32, rounded to bfloat16."""
    first, *rest = (tensors_of(folder) for folder in (base, *others))
    mixed = {}
    for name, start in first.items():
        changes = [tensors[name].float() - start.float() for tensors in rest]
        mixed[name] = (start.float() + lambda_ / len(changes) * torch.stack(changes).sum(0)).bfloat16()
    return mixed


# ---------------------------------------------------------------- numbers


@pytest.mark.slow
@pytest.mark.parametrize("average", [1, 2])
def test_the_logits_equal_those_of_weights_mixed_by_hand(average: int, run: Path, tmp_path: Path) -> None:
    big = AutoModelForCausalLM.from_pretrained(run / "checkpoint-20")
    big.save_pretrained(run / "checkpoint-20", max_shard_size="6KB")  # in other files than the base
    (run / "checkpoint-20/model.safetensors").unlink()
    oversharp.repair(run, tmp_path / "out", lambdas=[0.25, 1.2], average=average)
    ends = [run / f"checkpoint-{step}" for step in (10, 20)][-average:]
    for lambda_ in (0.25, 1.2):
        repaired = AutoModelForCausalLM.from_pretrained(tmp_path / f"out/checkpoint-{round(100 * lambda_)}")
        expected = build_model(0).bfloat16()
        expected.load_state_dict(mix_by_hand(run / "checkpoint-0", ends, lambda_))
        assert repaired.dtype == torch.bfloat16
        torch.testing.assert_close(repaired(TOKENS).logits, expected.eval()(TOKENS).logits, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{}, {"use_rslora": True}, {"rank_pattern": {"v_proj": 2}, "alpha_pattern": {"q_proj": 3}}]
)
@pytest.mark.parametrize("average", [1, 2])
def test_a_repaired_adapter_gives_the_logits_of_a_fraction_of_its_product(
    average: int, settings: dict[str, Any], adapters: Path, written: Path, tmp_path: Path
) -> None:
    from peft import PeftModel

    base = written / "full/checkpoint-0"
    merged = []
    for step in (10, 20)[-average:]:
        change_json(adapters / f"checkpoint-{step}/adapter_config.json", **settings)
        whole: Any = PeftModel.from_pretrained(_model(base), adapters / f"checkpoint-{step}")
        merged.append(whole.merge_and_unload().state_dict())
    oversharp.repair(adapters, tmp_path / "out", lambdas=[0.75], average=average)
    repaired = PeftModel.from_pretrained(_model(base), tmp_path / "out/checkpoint-75").eval()
    expected = _model(base)
    start = expected.state_dict()
    expected.load_state_dict(
        {name: zero + 0.75 * sum(other[name] - zero for other in merged) / average for name, zero in start.items()}
    )
    torch.testing.assert_close(repaired(TOKENS).logits, expected(TOKENS).logits, rtol=1e-4, atol=1e-4)


def _model(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.slow
def test_a_trained_adapter_as_base_is_mixed_with_the_other(adapters: Path, written: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    (adapters / "checkpoint-10").rename(adapters / "checkpoint-0")
    oversharp.repair(adapters, tmp_path / "out", lambdas=[0.25])
    base = written / "full/checkpoint-0"
    folders = (adapters / "checkpoint-0", adapters / "checkpoint-20", tmp_path / "out/checkpoint-25")
    models: list[Any] = [PeftModel.from_pretrained(_model(base), folder) for folder in folders]
    zero, whole, repaired = (model.merge_and_unload().state_dict() for model in models)
    for name, tensor in repaired.items():
        torch.testing.assert_close(tensor, 0.75 * zero[name] + 0.25 * whole[name], rtol=1e-4, atol=1e-5)
    assert steps_of(tmp_path / "out") == [0, 25, 100]


def test_a_repair_with_an_untrained_adapter_as_base_can_be_continued(
    adapters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (adapters / "checkpoint-10").rename(adapters / "checkpoint-0")
    untrain(adapters / "checkpoint-0")
    with monkeypatch.context() as patch:
        patch.setattr("oversharp.diagnostics.series.finding._without_untrained_adapter", lambda base, known: base)
        oversharp.repair(adapters, tmp_path / "out", lambdas=[0.25])
    oversharp.repair(adapters, tmp_path / "out", lambdas=[0.75])
    folders = sorted((tmp_path / "out").glob("checkpoint-*"), key=lambda folder: int(folder.name.split("-")[1]))
    assert [folder.name for folder in folders] == [f"checkpoint-{step}" for step in (0, 25, 75, 100)]
    quarter, most = (tensors_of(folder) for folder in folders[1:3])
    scaled = [name for name in most if "lora_B" in name]
    assert scaled
    for name in scaled:
        torch.testing.assert_close(3 * quarter[name], most[name])


@pytest.mark.parametrize("stores_head", ["base", "checkpoint", "both"])
def test_a_tied_head_is_mixed_from_either_name(stores_head: str, tmp_path: Path) -> None:
    for step, name in ((0, "base"), (10, "checkpoint")):
        folder = write_tied(tmp_path / f"run/checkpoint-{step}", step)
        if stores_head in (name, "both"):
            edit(folder, lambda tensors: tensors | {HEAD: tensors[EMBEDDINGS].clone()})
    oversharp.repair(tmp_path / "run", tmp_path / "out", lambdas=[0.5])
    repaired = tensors_of(tmp_path / "out/checkpoint-50")
    expected = [tensors_of(tmp_path / f"run/checkpoint-{step}")[EMBEDDINGS] for step in (0, 10)]
    torch.testing.assert_close(repaired[EMBEDDINGS], expected[0] + 0.5 * (expected[1] - expected[0]), rtol=0, atol=0)
    assert (HEAD in repaired) == (stores_head != "base")
    if HEAD in repaired:
        assert torch.equal(repaired[HEAD], repaired[EMBEDDINGS])


def test_integers_are_the_checkpoints_and_tensors_of_the_base_alone_are_listed(run: Path, tmp_path: Path) -> None:
    edit(run / "checkpoint-0", lambda tensors: tensors | {"mtp.weight": torch.ones(2), "ids": torch.tensor([1, 2])})
    edit(run / "checkpoint-20", lambda tensors: tensors | {"ids": torch.tensor([5, 7])})
    oversharp.repair(run, tmp_path / "out", lambdas=[0.5])
    repaired = tensors_of(tmp_path / "out/checkpoint-50")
    assert repaired["ids"].tolist() == [5, 7]
    assert "mtp.weight" not in repaired
    assert "are not included: 1, `mtp.weight` first" in (tmp_path / "out/checkpoint-50/README.md").read_text()


def test_a_change_by_one_bfloat16_step_needs_float32(run: Path, tmp_path: Path) -> None:
    def next_number(number_N: Tensor) -> Tensor:
        return (number_N.view(torch.int16) + 1).view(torch.bfloat16)

    start = tensors_of(run / "checkpoint-0")
    edit(run / "checkpoint-20", lambda _: start | {HEAD: next_number(start[HEAD])})
    rounded = oversharp.repair(run, tmp_path / "bf16", lambdas=[0.25, 0.5, 0.75])
    assert sorted(rounded.left_out) == ["checkpoint-25", "checkpoint-75"]
    assert "checkpoint-0, because training" in rounded.left_out["checkpoint-25"]
    assert "checkpoint-100, because training" in rounded.left_out["checkpoint-75"]
    half = rounded.points[1]  # ties round to even, so half of the numbers change
    assert half.step == 50
    assert half.rounded_lambda is not None
    assert abs(half.rounded_lambda - 0.5) < 0.3

    whole = oversharp.repair(run, tmp_path / "float32", lambdas=[0.25], float32=True)
    assert [point.step for point in whole.points] == [0, 25, 100]
    assert whole.points[1].rounded_lambda == pytest.approx(0.25)
    assert tensors_of(tmp_path / "float32/checkpoint-25")[HEAD].dtype == torch.float32
    assert json.loads((tmp_path / "float32/checkpoint-25/config.json").read_text())["dtype"] == "float32"


def test_a_point_that_equals_the_base_in_another_dtype_is_left_out(run: Path, tmp_path: Path) -> None:
    start = {name: tensor.float() for name, tensor in tensors_of(run / "checkpoint-0").items()}
    grown = {name: (tensor * 1.01).bfloat16() for name, tensor in start.items()}
    edit(run / "checkpoint-0", lambda _: start)
    edit(run / "checkpoint-20", lambda _: grown)
    result = oversharp.repair(run, tmp_path / "out", lambdas=[0.01, 0.5])
    assert list(result.left_out) == ["checkpoint-1"]
    assert steps_of(tmp_path / "out") == [0, 50, 100]


# ---------------------------------------------------------------- folders


def test_an_audit_accepts_the_series_and_its_ends_keep_their_hashes(run: Path, tmp_path: Path) -> None:
    template = build_tokenizer(chat_template="{{ messages[0].content }}")
    template.save_pretrained(run / "checkpoint-20")
    (run / "checkpoint-20/trainer_state.json").write_text('{"log_history": []}')
    result = oversharp.repair(run, tmp_path / "out")
    series, source = find_series([tmp_path / "out"]), find_series([run])
    assert (series.layout, source.layout) == ("repaired", "trl")
    assert [checkpoint.step for checkpoint in series.checkpoints] == [0, 25, 50, 75, 100]
    hashes = [checkpoint.weights_hash for checkpoint in series.checkpoints]
    assert hashes == [point.weights_hash for point in result.points]
    assert series.base.weights_hash == source.base.weights_hash
    assert series.checkpoints[-1].weights_hash == source.checkpoints[-1].weights_hash
    half = tmp_path / "out/checkpoint-50"
    assert (half / "chat_template.jinja").read_text() == "{{ messages[0].content }}"
    assert (half / "generation_config.json").is_file()
    assert not (half / "trainer_state.json").exists()
    text = (half / "README.md").read_text()
    assert all(digest in text for digest in (hashes[0], hashes[-1], hashes[2]))


def test_repaired_adapters_contain_the_path_of_their_model(adapters: Path, written: Path, tmp_path: Path) -> None:
    for step in (10, 20):
        change_json(adapters / f"checkpoint-{step}/adapter_config.json", base_model_name_or_path=None)
    oversharp.repair(adapters, tmp_path / "out", base=written / "full/checkpoint-0", checkpoint=10)
    assert steps_of(tmp_path / "out") == [0, 25, 50, 75, 100]
    assert find_series([tmp_path / "out"]).base.path == (written / "full/checkpoint-0").resolve()


def test_leftovers_of_a_killed_call_are_removed_and_finished_points_kept(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write = tensor_files._write_file

    def interrupt_second(file: Path, *rest: Any) -> None:
        write(file, *rest)
        if "50" in file.parent.name:
            shutil.copytree(file.parent, out / "tmp-checkpoint-60")  # a leftover without cleanup
            raise KeyboardInterrupt

    monkeypatch.setattr(tensor_files, "_write_file", interrupt_second)
    with pytest.raises(KeyboardInterrupt):
        oversharp.repair(run, out)
    monkeypatch.undo()
    assert steps_of(out) == [0, 25, 100]
    written_at = (out / "checkpoint-25/model.safetensors").stat().st_mtime_ns
    result = oversharp.repair(run, out)
    assert [point.found for point in result.points] == [True, True, False, False, True]
    assert (out / "checkpoint-25/model.safetensors").stat().st_mtime_ns == written_at
    assert not list(out.glob("tmp-*"))
    assert [point.step for point in oversharp.repair(run, out, lambdas=[0.9]).points] == [0, 25, 50, 75, 90, 100]


def test_an_incomplete_checkpoint_is_not_the_last(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "checkpoint-20", run / "checkpoint-30")
    file = run / "checkpoint-30/model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert oversharp.repair(run, tmp_path / "out", lambdas=[0.5]).checkpoints == ("checkpoint-20",)
    with pytest.raises(OversharpError, match=r"checkpoint-30: model.safetensors is truncated .* choose another"):
        oversharp.repair(run, tmp_path / "other", checkpoint=30)


def test_two_concurrent_calls_do_not_write_into_one_folder(run: Path, tmp_path: Path) -> None:
    oversharp.repair(run, tmp_path / "out", lambdas=[0.5])
    with (tmp_path / "out/repair.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OversharpError, match="another repair is writing here"):
            oversharp.repair(run, tmp_path / "out", lambdas=[0.75])


def test_a_full_disk_loses_only_the_current_point(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = tensor_files._write_file

    def fill_disk_at_second(file: Path, *rest: Any) -> None:
        write(file, *rest)
        if "50" in file.parent.name:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tensor_files, "_write_file", fill_disk_at_second)
    with pytest.raises(OversharpError, match="checkpoint-50: the disk is full; make room and run the same command"):
        oversharp.repair(run, tmp_path / "out")
    names = sorted(folder.name for folder in (tmp_path / "out").glob("*checkpoint*"))
    assert names == ["checkpoint-0", "checkpoint-100", "checkpoint-25"]


def test_the_command_lists_skipped_points_and_exits_with_3(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = tensors_of(run / "checkpoint-0")
    head = start[HEAD].clone()
    head[0, 0] = (head[0, 0].view(torch.int16) + 1).view(torch.bfloat16)
    edit(run / "checkpoint-20", lambda _: start | {HEAD: head})
    with pytest.raises(SystemExit) as ended:
        main(["repair", str(run), "--out", str(tmp_path / "out"), "--lambdas", "0.25", "--json"])
    printed = capsys.readouterr()
    assert ended.value.code == 3
    assert [point["step"] for point in json.loads(printed.out)["points"]] == [0, 100]
    assert printed.err.startswith("warning: left out checkpoint-25: rounds to the weights of checkpoint-0")


# ---------------------------------------------------------------- errors


def change_config(folder: Path, **entries: Any) -> None:
    change_json(folder / "config.json", **entries)


def set_adapter(folder: Path, **entries: Any) -> None:
    change_json(folder / "adapter_config.json", **entries)


def pickle_weights(folder: Path, name: str = "model") -> None:
    pickle = {"model": "pytorch_model.bin", "adapter_model": "adapter_model.bin"}[name]
    (folder / f"{name}.safetensors").rename(folder / pickle)


def shrink_adapter(folder: Path) -> None:
    def shrink(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: tensor[:1] if "lora_A" in name else tensor[:, :1].contiguous() for name, tensor in tensors.items()
        }

    edit(folder, shrink, "adapter_model")
    set_adapter(folder, r=1)


Break = Callable[[Path], object]
FULL: list[tuple[Break, dict[str, Any], str]] = [
    (lambda run: change_config(run / "checkpoint-20", num_attention_heads=4), {}, "num_attention_heads is 2 and 4"),
    (lambda run: edit(run / "checkpoint-0", without("model.norm.weight")), {}, "has no tensor model.norm.weight"),
    (
        lambda run: edit(run / "checkpoint-0", lambda tensors: tensors | {"model.norm.weight": torch.ones(3)}),
        {},
        r"F32 \[3\] in checkpoint-0 and BF16 \[16\] in checkpoint-20; pass the model",
    ),
    (lambda run: edit(run / "checkpoint-20", without(HEAD)), {}, "ties it to the embeddings"),
    (
        lambda run: change_config(run / "checkpoint-20", quantization_config={"bits": 4}),
        {},
        "quantised .by its config.json",
    ),
    (
        lambda run: edit(run / "checkpoint-0", lambda tensors: tensors | {HEAD: tensors[HEAD].to(torch.float8_e4m3fn)}),
        {},
        "lm_head.weight in model.safetensors is F8_E4M3",
    ),
    (lambda run: pickle_weights(run / "checkpoint-20"), {}, "pytorch_model.bin is a pickle"),
    (
        lambda run: edit(run / "checkpoint-20", lambda tensors: tensors | {HEAD: tensors[HEAD] * torch.nan}),
        {},
        "lm_head.weight contains NaN",
    ),
    (lambda run: [shutil.rmtree(run / f"checkpoint-{step}") for step in (10, 20)], {}, "only one checkpoint"),
    (lambda run: None, {"checkpoint": 15}, "checkpoint=15: no such checkpoint in the series; it has 10, 20"),
    (lambda run: None, {"average": 3}, "only 2 checkpoints up to step 20 follow the base; use at most 2"),
    (lambda run: None, {"average": 0}, "average=0: must be at least 1"),
    (lambda run: None, {"lambdas": [0.5, 0.5]}, "lambdas=0.5: duplicated"),
    (lambda run: None, {"lambdas": [0]}, "lambdas=0: must be above 0"),
    (lambda run: None, {"lambdas": [1.6]}, "lambdas=1.6: must be above 0 .* at most 1.5"),
    (lambda run: None, {"lambdas": [0.333]}, "lambdas=0.333: must be a multiple of 0.01; use 0.33"),
]
LORA: list[tuple[Break, dict[str, Any], str]] = [
    (lambda run: set_adapter(run / "checkpoint-20", use_dora=True), {}, "has DoRA"),
    (
        lambda run: set_adapter(run / "checkpoint-20", modules_to_save=["lm_head"]),
        {},
        "whole modules .* merge the adapters",
    ),
    (
        lambda run: set_adapter(run / "checkpoint-20", init_lora_weights="pissa_niter_4"),
        {},
        "has base weights moved into its factors",
    ),
    (lambda run: set_adapter(run / "checkpoint-20", bias="all"), {}, "has trained biases"),
    (lambda run: set_adapter(run / "checkpoint-20", peft_type="IA3"), {}, "has the kind IA3"),
    (lambda run: pickle_weights(run / "checkpoint-20", "adapter_model"), {}, "adapter_model.bin is a pickle"),
    (lambda run: shrink_adapter(run / "checkpoint-10"), {"average": 2}, r"r differs \(1 and 2\)"),
    (
        lambda run: set_adapter(run / "checkpoint-10", target_modules=["q_proj"]),
        {"average": 2},
        "target_modules differs",
    ),
    (
        lambda run: write_model(build_model(7), run.parent / "other"),
        {"base": "other"},
        "is an adapter of .*checkpoint-0, but base= .*other has other weights; pass base= .*checkpoint-0",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "damage", "settings", "message"),
    [("run", *case) for case in FULL] + [("adapters", *case) for case in LORA],
    ids=[case[2][:40] for case in FULL + LORA],
)
def test_weights_that_cannot_be_mixed_are_an_error_and_no_point_is_written(
    kind: str,
    damage: Break,
    settings: dict[str, Any],
    message: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    series: Path = request.getfixturevalue(kind)
    damage(series)
    if "base" in settings:
        settings = settings | {"base": tmp_path / settings["base"]}
    with pytest.raises(OversharpError, match=message) as caught:
        oversharp.repair(series, tmp_path / "out", **settings)
    assert "\n" not in str(caught.value)
    names = {folder.name for folder in (tmp_path / "out").glob("*checkpoint-*")}
    assert names <= {"checkpoint-0", "checkpoint-100"}


def unusable_outs(run: Path, out: Path) -> Iterator[tuple[Path, dict[str, Any], str]]:
    (out / "notes").mkdir(parents=True)
    yield out, {}, r"contains other files \(notes\); choose a new folder"
    yield run / "repaired", {}, "is inside .*run, which is a series"
    (out.parent / "file").touch()
    yield out.parent / "file", {}, "is a file"
    oversharp.repair(run, out.parent / "done", checkpoint=10, lambdas=[0.5])
    yield out.parent / "done", {}, "contains a repair with another checkpoint"
    (out.parent / "done/checkpoint-50/model.safetensors").write_bytes(b"")
    yield out.parent / "done", {"checkpoint": 10}, "checkpoint-50: .*delete it and run the same command again"


def test_an_out_folder_with_other_files_is_unchanged(run: Path, tmp_path: Path) -> None:
    for out, settings, message in unusable_outs(run, tmp_path / "out"):
        before = sorted(out.rglob("*"))
        with pytest.raises(OversharpError, match=message):
            oversharp.repair(run, out, **settings)
        assert sorted(out.rglob("*")) == before


def test_a_disk_without_space_is_an_error_before_any_file_is_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil._ntuple_diskusage(10**12, 10**12, 4000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(OversharpError, match=r"needs less than 1 MB, but its disk has less than 1 MB free; make"):
        oversharp.repair(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**12, 10**12, 540_000_000))
    with pytest.raises(ConfigError, match=r"needs 29.1 GB, but its disk has 540 MB free; make room"):
        require_space(tmp_path / "out", 29_100_000_000)


def test_a_tensor_larger_than_a_chunk_is_mixed_completely(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oversharp.diagnostics.repair import mixing

    monkeypatch.setattr(mixing, "_AT_A_TIME", 7)  # no divisor of any size here
    oversharp.repair(run, tmp_path / "out", lambdas=[0.25])
    repaired = tensors_of(tmp_path / "out/checkpoint-25")
    expected = mix_by_hand(run / "checkpoint-0", [run / "checkpoint-20"], 0.25)
    assert repaired.keys() == expected.keys()
    assert all(torch.equal(repaired[name], expected[name]) for name in repaired)
