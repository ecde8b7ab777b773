"""Every checkpoint layout of docs/layouts.md, as folders with a tiny model of transformers and peft."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from oversharp.diagnostics.models.load import load_model
from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.series import find_series
from oversharp.diagnostics.series.layouts import conversion_hint
from tests.series.written_runs import (
    ADAPTER_10,
    ADAPTER_20,
    BARE_10,
    BASE,
    NAMELESS_10,
    NAMELESS_20,
    SETTINGS,
    STEP_10,
    STEP_20,
    TOKENIZER,
    Files,
    empty,
    write_run,
)


def shards(actor: str, ranks: Iterable[int] = (0, 1), *, world: int = 2, config: bool = True) -> Files:
    """Return the files of verl's and SkyRL's FSDP managers."""
    files = empty(
        *(f"{actor}/{kind}_world_size_{world}_rank_{rank}.pt" for kind in ("model", "optim") for rank in ranks)
    )
    return files | ({f"{actor}/fsdp_config.json": json.dumps({"world_size": world})} if config else {})


def merge(actor: str, *options: str, target: str = "huggingface") -> str:
    """Return the merge command for the folder ``actor`` of ``{run}``."""
    words = ["python -m verl.model_merger merge --backend", *(options or ("fsdp",))]
    return f"{' '.join(words)} --local_dir {{run}}/{actor} --target_dir {{run}}/{actor}/{target}"


def megatron(actor: str, *, peft: bool = False) -> Files:
    return {f"{actor}/ckpt_contents.json": json.dumps({"schema_version": 2, "backend": {"peft": peft}})}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A run's files and its series: ``found`` maps steps to folders of the run, ``+`` marks adapters."""

    name: str
    files: Files
    found: dict[int, str]
    skipped: tuple[str, ...] = ()
    base: bool = False  # whether --base is given


LATEST = {"latest_checkpointed_iteration.txt": "30"}
LORA = {"r": 2, "lora_alpha": 4, "task_type": "CAUSAL_LM"}
STAGED = {f"trainer/{name}": "" for name in (".metadata", "__0_0.distcp")}

LAYOUTS = {
    "trl": Layout(
        name="trl",
        files={
            "checkpoint-10": STEP_10,
            "checkpoint-20": STEP_20,
            "checkpoint-20/trainer_state.json": '{"log_history": []}',
            ".": STEP_20,
        },
        found={0: "base", 10: "checkpoint-10", 20: "checkpoint-20"},
        base=True,
    ),
    "trl lora": Layout(
        name="trl",
        files={
            "checkpoint-10": ADAPTER_10,
            "checkpoint-20": ADAPTER_20,
            "checkpoint-20/trainer_state.json": '{"log_history": []}',
        },
        found={0: "base", 10: "+checkpoint-10", 20: "+checkpoint-20"},
    ),
    "verl fsdp": Layout(
        name="verl",
        files={
            **LATEST,
            "global_step_10/data.pt": "",
            **shards("global_step_10/actor"),
            "global_step_10/actor/huggingface": STEP_10,
            "global_step_10/critic/huggingface": BASE,
            **shards("global_step_20/actor"),
            "global_step_20/actor/huggingface": STEP_20,
            **shards("global_step_30/actor"),
            "global_step_30/actor/huggingface": SETTINGS,
            **shards("global_step_40/actor", [1]),
            **shards("global_step_50/actor", config=False),
        },
        found={10: "global_step_10/actor/huggingface", 20: "global_step_20/actor/huggingface"},
        skipped=(
            f"global_step_30: contains FSDP shards only; merge them: {merge('global_step_30/actor')}",
            "global_step_40: contains 1 of 2 FSDP shards; the others are still being written, or are on other nodes",
            "global_step_50: contains FSDP shards without fsdp_config.json: it is still being written, or an older "
            "verl wrote it; merge an older verl's shards from its repository: python scripts/legacy_model_merger.py "
            "merge --backend fsdp "
            "--local_dir {run}/global_step_50/actor --target_dir {run}/global_step_50/actor/huggingface",
        ),
    ),
    "verl sft": Layout(
        name="verl",
        files={
            **shards("global_step_10"),
            "global_step_10/huggingface": STEP_10,
            **shards("global_step_20"),
            "global_step_20/huggingface": SETTINGS,
        },
        found={0: "base", 10: "global_step_10/huggingface"},
        skipped=(f"global_step_20: contains FSDP shards only; merge them: {merge('global_step_20')}",),
        base=True,
    ),
    "verl lora, merged": Layout(  # the weights in huggingface are the base's
        name="verl",
        files={
            **{f"global_step_{step}/actor/lora_train_meta.json": json.dumps(LORA) for step in (10, 20, 30)},
            **{f"global_step_{step}/actor/huggingface": BASE for step in (10, 20)},
            "global_step_10/actor/huggingface/lora_adapter": NAMELESS_10,
            "global_step_20/actor/huggingface/lora_adapter": NAMELESS_20,
            **shards("global_step_30/actor"),
            "global_step_30/actor/huggingface": STEP_20,  # of hf_model, with names that no library loads
        },
        found={
            0: "global_step_10/actor/huggingface",
            10: "+global_step_10/actor/huggingface/lora_adapter",
            20: "+global_step_20/actor/huggingface/lora_adapter",
        },
        skipped=(
            f"global_step_30: contains a LoRA adapter in FSDP shards only; merge them: {merge('global_step_30/actor')}",
        ),
    ),
    "verl lora, merged elsewhere": Layout(
        name="verl",
        files={
            "step_10": BASE,
            "step_10/lora_adapter": NAMELESS_10,
            "step_20": BASE,
            "step_20/lora_adapter": NAMELESS_20,
        },
        found={0: "base", 10: "+step_10/lora_adapter", 20: "+step_20/lora_adapter"},
        base=True,
    ),
    "verl lora, saved while training": Layout(
        name="verl",
        files={
            **shards("global_step_10/actor"),
            "global_step_10/actor/huggingface": SETTINGS,
            "global_step_10/actor/lora_adapter": ADAPTER_10,
        },
        found={0: "base", 10: "+global_step_10/actor/lora_adapter"},
    ),
    "verl megatron": Layout(
        name="verl",
        files={
            **megatron("global_step_10/actor"),
            "global_step_10/actor/model/huggingface": STEP_10,
            "global_step_10/actor/optimizer/dist_ckpt/common.pt": "",
            **megatron("global_step_20/actor"),
            "global_step_20/actor/model/huggingface": STEP_20,
            "global_step_30/actor/model/huggingface": STEP_20,
            **megatron("global_step_40/actor"),
            "global_step_40/actor/model/huggingface": SETTINGS,
            "global_step_40/actor/model/dist_ckpt/common.pt": "",
            **megatron("global_step_50/actor"),
            "global_step_50/actor/model/dist_ckpt/common.pt": "",
            **megatron("global_step_60/actor", peft=True),
            "global_step_60/actor/model/huggingface": BASE,
        },
        found={10: "global_step_10/actor/model/huggingface", 20: "global_step_20/actor/model/huggingface"},
        skipped=(
            "global_step_30: is still being written (ckpt_contents.json missing, which verl writes last)",
            "global_step_40: contains Megatron shards only; merge them: "
            + merge("global_step_40/actor", "megatron --tie-word-embedding", target="model/huggingface"),
            "global_step_50: contains Megatron shards only; copy the base's config.json and tokenizer files to "
            "{run}/global_step_50/actor/model/huggingface and merge them: "
            + merge("global_step_50/actor", "megatron", target="model/huggingface"),
            "global_step_60: is a LoRA checkpoint with its adapter in Megatron shards only, next to the unmodified "
            "base; train with actor_rollout_ref.actor.megatron.vanilla_mbridge=False, which saves "
            "model/huggingface/adapter",
        ),
    ),
    "verl megatron lora": Layout(
        name="verl",
        files={
            **megatron("global_step_10/actor", peft=True),
            "global_step_10/actor/model/huggingface": SETTINGS,
            "global_step_10/actor/model/huggingface/adapter": ADAPTER_10,
        },
        found={0: "base", 10: "+global_step_10/actor/model/huggingface/adapter"},
    ),
    "verl megatron before the manifest": Layout(
        name="verl",
        files={
            "global_step_10/actor/dist_ckpt/common.pt": "",
            "global_step_10/actor/huggingface": STEP_10,
            "global_step_20/actor/dist_ckpt/common.pt": "",
        },
        found={0: "base", 10: "global_step_10/actor/huggingface"},
        skipped=(
            "global_step_20: contains an older verl's Megatron shards only; merge them, from its repository: "
            "python scripts/migrate_megatron_checkpoint_layout.py --checkpoint {run}/global_step_20/actor && "
            + merge("global_step_20/actor", "megatron", target="model/huggingface"),
        ),
        base=True,
    ),
    "openrlhf": Layout(
        name="openrlhf",
        files={
            **empty("_actor/latest", "_actor/global_step10/mp_rank_00_model_states.pt"),
            "global_step10_hf": STEP_10,
            "global_step20_hf": STEP_20,
            "best_global_step20_hf": STEP_20,
            "best_global_step15_hf": BASE,
        },
        found={10: "global_step10_hf", 15: "best_global_step15_hf", 20: "global_step20_hf"},
    ),
    "prime-rl until 0.8": Layout(
        name="prime-rl",
        files={
            **empty("weights/step_10/STABLE", "weights/step_20/STABLE", "checkpoints/step_10/trainer/.metadata"),
            **{"weights/step_10": STEP_10, "weights/step_10/lora_adapters": ADAPTER_10},
            "weights/step_20": STEP_20,
            "weights/step_30": STEP_20,
            "rollouts/step_40/train/all/traces.jsonl": "",
        },
        found={10: "weights/step_10", 20: "weights/step_20"},
        skipped=("step_30: is still being written (STABLE missing, which prime-rl writes last)",),
    ),
    "prime-rl": Layout(
        name="prime-rl",
        files={
            **{f"checkpoints/step_{step}/{name}": "" for step in (10, 20, 30) for name in STAGED},
            "checkpoints/step_10/weights": STEP_10,
            "checkpoints/step_20/weights": STEP_20,
            "checkpoints/step_40/trainer/__0_0.distcp": "",
            "broadcasts/step_39/STABLE": "",
        },
        found={10: "checkpoints/step_10/weights", 20: "checkpoints/step_20/weights"},
        skipped=(
            "step_30: contains DCP shards only; convert them, from prime-rl's repository: "
            "uv run python tools/convert_dcp_to_bf16.py {run}/checkpoints/step_30",
            "step_40: is still being written (trainer/.metadata missing, which prime-rl writes last)",
        ),
    ),
    "prime-rl lora": Layout(
        name="prime-rl",
        files={
            **empty("broadcasts/step_10/STABLE", "broadcasts/step_20/STABLE", "checkpoints/step_20/trainer/.metadata"),
            "broadcasts/step_10": ADAPTER_10,
            "broadcasts/step_20": ADAPTER_20,
        },
        found={0: "base", 10: "+broadcasts/step_10", 20: "+broadcasts/step_20"},
    ),
    "slime": Layout(
        name="slime",
        files={
            **empty("iter_0000010/__0_0.distcp", "iter_0000020/common.pt", "iter_0000030/.metadata"),
            "hf/iter_0000010": STEP_10,
            "hf/iter_0000020": STEP_20,
        },
        found={10: "hf/iter_0000010", 20: "hf/iter_0000020"},
    ),
    "slime, converted": Layout(
        name="slime",
        files={
            **LATEST,
            **empty("iter_0000010/__0_0.distcp", "iter_0000020/common.pt", "iter_0000030/.metadata"),
            "iter_0000010_hf": STEP_10,
            "iter_0000020_hf": STEP_20,
        },
        found={10: "iter_0000010_hf", 20: "iter_0000020_hf"},
        skipped=(
            "iter_0000030: contains Megatron shards only; train with --save-hf, or convert them, from slime's "
            "repository, where BASE is the base model: python tools/convert_torch_dist_to_hf.py --input-dir "
            "{run}/iter_0000030 --output-dir {run}/iter_0000030_hf --origin-hf-dir BASE",
        ),
    ),
    "skyrl": Layout(
        name="skyrl",
        files={
            **shards("ckpts/global_step_10/policy"),
            "export/global_step_10/policy": STEP_10,
            "export/global_step_20/policy": STEP_20,
            "export/global_step_20/critic": BASE,
            "export/global_step_30/policy/.tmp": "",
            "export/dumped_evals/global_step_10_evals/gsm8k.jsonl": "",
        },
        found={10: "export/global_step_10/policy", 20: "export/global_step_20/policy"},
        skipped=("global_step_30: is still being exported (no weights in policy)",),
    ),
    "skyrl lora": Layout(
        name="skyrl",
        files={
            "latest_ckpt_global_step.txt": "10",
            **shards("global_step_10/policy"),
            "global_step_10/policy/huggingface": SETTINGS,
            "global_step_10/policy/lora_adapter": ADAPTER_10,
            "global_step_10/trainer_state.pt": "",
            "global_step_20/policy/lora_adapter": ADAPTER_20,
            **shards("global_step_30/policy"),
        },
        found={0: "base", 10: "+global_step_10/policy/lora_adapter"},
        skipped=(
            "global_step_20: is still being written (trainer_state.pt missing, which SkyRL writes last)",
            "global_step_30: contains the training state only, for which SkyRL has no converter; train with "
            "trainer.hf_save_interval and pass the trainer.export_path",
        ),
    ),
    "nemo-rl": Layout(
        name="nemo-rl",
        files={
            **{f"step_{step}/training_info.json": "{}" for step in (10, 20, 30, 40, 50, 60)},
            "step_10/policy/tokenizer": TOKENIZER,
            "step_10/policy/weights/model/consolidated": BARE_10,
            "step_10/policy/weights/model/shard-00001-model-00001-of-00001.safetensors": "",
            "step_20/policy/weights/.metadata": "",
            "step_20-hf": STEP_20,
            "step_30/policy/weights/model/.metadata": "",
            "step_40/policy/weights/iter_0000000/common.pt": "",
            "step_50/policy/weights/model/shard-00001-model-00001-of-00001.safetensors": "",
            "step_60/policy/weights/model/consolidate.sh": "",
            "old_step_20": BASE,
            "tmp_step_70": BASE,
        },
        found={10: "step_10/policy/weights/model/consolidated", 20: "step_20-hf"},
        skipped=(
            "tmp_step_70: is still being written, judging by its name",
            "step_30: contains DCP shards only; convert them: uv run python examples/converters/convert_dcp_to_hf.py "
            "--config {run}/step_30/config.yaml --dcp-ckpt-path {run}/step_30/policy/weights "
            "--hf-ckpt-path {run}/step_30-hf",
            "step_40: contains Megatron shards only; convert them (LoRA: with convert_lora_to_hf.py): "
            "uv run --extra mcore python examples/converters/convert_megatron_to_hf.py --config "
            "{run}/step_40/config.yaml --megatron-ckpt-path {run}/step_40/policy/weights/iter_0000000 "
            "--hf-ckpt-path {run}/step_40-hf",
            "step_50: contains safetensors shards only; join them, from Automodel's repository, where NAME is the "
            "trained model's: python tools/offline_hf_consolidation.py --model-name NAME --input-dir "
            "{run}/step_50/policy/weights/model --output-dir {run}/step_50/policy/weights/model/consolidated",
            "step_60: contains safetensors shards only; join them, from Automodel's repository: "
            "bash {run}/step_60/policy/weights/model/consolidate.sh",
        ),
    ),
    "nemo-rl lora": Layout(
        name="nemo-rl",
        files={
            "step_10/training_info.json": "{}",
            "step_10/policy/weights/model": ADAPTER_10,
            "step_10/policy/tokenizer": TOKENIZER,
        },
        found={0: "base", 10: "+step_10/policy/weights/model"},
    ),
}

ZERO3 = "{}/zero_pp_rank_{}_mp_rank_00_model_states.pt"

LAYOUTS |= {
    "trl with shards": Layout(
        name="trl",
        files={
            "checkpoint-10": STEP_10,
            **{f"checkpoint-{step}": SETTINGS for step in (20, 30, 40, 50)},
            **{f"checkpoint-{step}/trainer_state.json": '{"log_history": []}' for step in (10, 20, 30, 40, 50)},
            **empty(*(ZERO3.format("checkpoint-20/global_step20", rank) for rank in (0, 1))),
            **empty("checkpoint-20/zero_to_fp32.py"),
            "checkpoint-20/latest": "global_step20",
            **empty(f"checkpoint-30/global_step30/{'mp_rank_00_model_states.pt'}"),
            **empty(*(f"checkpoint-40/pytorch_model_fsdp_0/{name}" for name in (".metadata", "__0_0.distcp"))),
            **empty("checkpoint-40/optimizer_0/__0_0.distcp"),
            **empty("checkpoint-50/pytorch_model_fsdp_0/__0_0.distcp"),
        },
        found={0: "base", 10: "checkpoint-10"},
        base=True,
        skipped=(
            "checkpoint-20: contains DeepSpeed ZeRO-3 shards (2 ranks) only; convert them: python "
            "{run}/checkpoint-20/zero_to_fp32.py {run}/checkpoint-20 {run}/checkpoint-20 --tag global_step20 "
            "--safe_serialization",
            "checkpoint-30: contains DeepSpeed's training state only; convert them: python -m "
            "deepspeed.utils.zero_to_fp32 {run}/checkpoint-30 {run}/checkpoint-30 --tag global_step30 "
            "--safe_serialization",
            "checkpoint-40: contains FSDP shards only; merge them: accelerate merge-weights "
            "{run}/checkpoint-40/pytorch_model_fsdp_0 {run}/checkpoint-40",
            "checkpoint-50: contains FSDP shards without pytorch_model_fsdp_0/.metadata, which torch writes last: it "
            "is still being written or incomplete",
        ),
    ),
    "shards without a trainer": Layout(
        name="shards",
        files={
            **empty(*(ZERO3.format(f"global_step{step}", 0) for step in (10, 20)), "zero_to_fp32.py"),
            "latest": "global_step20",
            **empty("global_step30/.metadata", "global_step30/__0_0.distcp"),
            **empty("global_step40/pytorch_model_fsdp.bin", "global_step50/pytorch_model_fsdp_rank0.bin"),
            "global_step60": STEP_10,
        },
        found={0: "base", 60: "global_step60"},
        base=True,
        skipped=(
            *(
                f"global_step{step}: contains DeepSpeed ZeRO-3 shards (1 rank) only; copy the base's config.json and "
                f"tokenizer files to {{run}}/global_step{step} and convert them: python {{run}}/zero_to_fp32.py "
                f"{{run}} {{run}}/global_step{step} --tag global_step{step} --safe_serialization"
                for step in (10, 20)
            ),
            "global_step30: contains torch's distributed shards (DCP) only; copy the base's config.json and tokenizer "
            "files to {run}/global_step30 and merge them: accelerate merge-weights {run}/global_step30 "
            "{run}/global_step30",
            "global_step40: contains pytorch_model_fsdp.bin only; copy the base's config.json and tokenizer files to "
            "{run}/global_step40 and convert it to safetensors: CONVERSION",
            "global_step50: contains FSDP shards of 1 rank (LOCAL_STATE_DICT) only, for which there is no "
            "converter; resume the "
            "run and save with fsdp_state_dict_type SHARDED_STATE_DICT or FULL_STATE_DICT",
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_layout_is_recognised_from_the_root_of_its_run(layout: Layout, pieces: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", layout.files, pieces)
    series = find_series([run], base=pieces / "base" if layout.base else None)
    places = {step: place.lstrip("+") for step, place in layout.found.items()}
    assert {checkpoint.step: checkpoint.path for checkpoint in series.checkpoints} == {
        step: pieces / "base" if place == "base" else run / place for step, place in places.items()
    }
    assert [checkpoint.kind == "lora" for checkpoint in series.checkpoints] == [
        place.startswith("+") for place in layout.found.values()
    ]
    skipped = tuple(re.sub("python -c .*", "CONVERSION", line) for line in series.skipped)
    assert skipped == tuple(line.format(run=run) for line in layout.skipped)
    assert (series.layout, series.path, series.name) == (layout.name, run, "run")


REFUSED = {
    "openrlhf without --ckpt.save_hf": (
        empty("_actor/latest", "_actor/global_step10/zero_pp_rank_0_mp_rank_00_model_states.pt"),
        "{run}: no checkpoint can be read: global_step10: contains DeepSpeed's training state, which only OpenRLHF "
        "loads; train with --ckpt.save_hf, which writes global_stepN_hf next to _actor",
    ),
    "verl, nothing merged": (
        shards("global_step_10/actor") | shards("global_step_20/actor"),
        "{run}: no checkpoint can be read: "
        f"global_step_10: contains FSDP shards only; merge them: {merge('global_step_10/actor')}; "
        f"global_step_20: contains FSDP shards only; merge them: {merge('global_step_20/actor')}",
    ),
    "verl, the base not merged": (
        {**shards("global_step_10/actor"), "global_step_20/actor/huggingface": STEP_20},
        "global_step_10 is the base of the series (--base PATH sets another), but contains FSDP shards only; "
        f"merge them: {merge('global_step_10/actor')}",
    ),
    "prime-rl, full broadcasts": (
        {"broadcasts/step_10/STABLE": "", "broadcasts/step_10/model.safetensors": ""},
        "{run}: no checkpoint can be read: step_10: is a weight broadcast; copy the base's config.json and tokenizer "
        "files there",
    ),
    "skyrl, an export that began": (
        {"global_step_10/policy": STEP_10, "global_step_20/policy/.tmp": ""},
        "{run}/global_step_10/policy: only one checkpoint can be read, a series needs two: pass a directory with "
        "several, or --base PATH; left out: global_step_20: is still being exported (no weights in policy)",
    ),
    "nemo-rl, nothing known in weights": (
        {"step_10/training_info.json": "{}", "step_10/policy/weights/other.pt": ""},
        "{run}: no checkpoint can be read: step_10: has an unrecognized format in policy/weights; pass a converted "
        "checkpoint",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_the_error_for_an_unreadable_run_has_a_hint(case: tuple[Files, str], pieces: Path, tmp_path: Path) -> None:
    files, message = case
    run = write_run(tmp_path / "run", files, pieces)
    with pytest.raises(CheckpointError) as caught:
        find_series([run])
    assert str(caught.value) == message.replace("{run}", str(run))


@pytest.mark.parametrize("given", ["global_step_*", "global_step_*/actor", "global_step_*/actor/huggingface"])
def test_a_folder_inside_a_step_means_the_step(given: str, pieces: Path, tmp_path: Path) -> None:
    """The last folder contains weights that the merger left unmodified."""
    run = write_run(tmp_path / "run", LAYOUTS["verl lora, merged"].files, pieces)
    whole, listed = find_series([run]), find_series([str(run / given)])
    assert (listed.checkpoints, listed.path, listed.layout) == (whole.checkpoints, run, "verl")


def test_the_adapters_of_verl_are_loaded_and_its_copies_of_the_base_are_one_model(pieces: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", LAYOUTS["verl lora, merged"].files, pieces)
    base, first, second = find_series([run]).checkpoints
    assert first.base_path == second.base_path == base.path
    assert base.label == "base"
    logits = [logits_of(checkpoint, torch.tensor([[5, 6, 7]])) for checkpoint in (base, first, second)]
    assert not torch.allclose(logits[0], logits[1])
    assert not torch.allclose(logits[1], logits[2])


def logits_of(checkpoint: Any, ids: torch.Tensor) -> torch.Tensor:
    loaded = load_model(checkpoint, device=torch.device("cpu"), dtype="float32")
    with torch.no_grad():
        logits: torch.Tensor = loaded.model(ids).logits
    return logits


def test_the_tokenizer_that_nemo_rl_saves_next_to_the_weights_is_found(pieces: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", LAYOUTS["nemo-rl"].files, pieces)
    consolidated = find_series([run]).checkpoints[0]
    assert logits_of(consolidated, torch.tensor([[5]])).shape[-1] > 5
    shutil.rmtree(run / "step_10/policy/tokenizer")
    with pytest.raises(CheckpointError, match=r"step_10/.*consolidated: tokenizer.json missing"):
        find_series([run])


def test_the_base_may_be_given_as_the_folder_of_its_step(pieces: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", LAYOUTS["verl fsdp"].files, pieces)
    other = write_run(tmp_path / "other", {"global_step_0/actor/huggingface": BASE}, pieces)
    series = find_series([run], base=other / "global_step_0")
    assert (series.base.path, series.base.step) == (other / "global_step_0/actor/huggingface", 0)
    with pytest.raises(
        CheckpointError, match=r"--base .*global_step_30: contains FSDP shards only; merge them: python"
    ):
        find_series([run], base=run / "global_step_30")


DEEPSPEED = "mp_rank_00_model_states.pt"


@pytest.mark.parametrize(
    "inside",
    [
        [f"code-{number}/{name}/train.py" for number in (1, 2) for name in ("actor", "policy", "trainer")],
        [f"checkpoint-{step}/global_step{step}/{DEEPSPEED}" for step in (10, 20)],
    ],
    ids=["names of other layouts", "DeepSpeed's folders"],
)
def test_folders_that_are_no_steps_are_ignored(inside: list[str], pieces: Path, tmp_path: Path) -> None:
    models = {"checkpoint-10": STEP_10, "checkpoint-20": STEP_20}
    run = write_run(tmp_path / "run", {**empty(*inside), **models}, pieces)
    for paths in ([run], [str(run / "checkpoint-*")]):
        series = find_series(paths)
        assert [checkpoint.path for checkpoint in series.checkpoints] == [run / name for name in models]
        assert series.skipped == ()
        assert series.layout == "hf"


def test_the_step_is_the_checkpoint_around_a_folder_of_deepspeed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", empty(ZERO3.format("checkpoint-20/global_step20", 0)), tmp_path)
    for path in (run, run / "checkpoint-20"):
        with pytest.raises(
            CheckpointError, match=r"checkpoint-20: contains DeepSpeed ZeRO-3 shards .*checkpoint-20 --tag"
        ):
            find_series([path])


@pytest.mark.slow
def test_the_command_for_a_pickle_of_fsdp_writes_a_readable_checkpoint(pieces: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"checkpoint-10": STEP_10, "checkpoint-20": STEP_20}, pieces)
    folder = run / "checkpoint-20"
    whole = find_series([run]).checkpoints[1]
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model_fsdp.bin")
    (folder / "model.safetensors").unlink()
    command = conversion_hint(folder / "pytorch_model_fsdp.bin", folder / "model.safetensors").partition(": ")[2]
    subprocess.run([sys.executable, *shlex.split(command)[1:]], check=True)
    assert find_series([run]).checkpoints[1].weights_hash == whole.weights_hash


# ---------------------------------------------------------------- written by the library


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the library's own
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_run_of_the_trainer_of_transformers(kind: str, pieces: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

    model = AutoModelForCausalLM.from_pretrained(pieces / "base")
    if kind == "lora":
        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    run = tmp_path / "run"
    settings = {"max_steps": 4, "save_steps": 2, "logging_steps": 1, "learning_rate": 1e-2, "report_to": []}
    arguments = TrainingArguments(output_dir=str(run), use_cpu=True, disable_tqdm=True, **settings)
    row = {"input_ids": [5, 6, 7], "labels": [5, 6, 7]}
    tokenizer = AutoTokenizer.from_pretrained(pieces / "base")
    trainer = Trainer(model=model, args=arguments, train_dataset=[row] * 8, processing_class=tokenizer)
    trainer.train()
    trainer.save_model()
    series = find_series([run], base=pieces / "base")
    kinds = [(checkpoint.step, checkpoint.kind) for checkpoint in series.checkpoints]
    assert kinds == [(0, "full"), (2, kind), (4, kind)]
    assert [checkpoint.path for checkpoint in series.checkpoints[1:]] == [run / "checkpoint-2", run / "checkpoint-4"]
    assert (series.layout, series.skipped) == ("trl", ())
    losses = [metric for metric in series.metrics if metric.name == "loss"]
    assert [loss.step for loss in losses] == [1, 2, 3, 4]
    assert losses[-1].value < losses[0].value


def test_a_hub_name_is_answered_with_the_command_that_downloads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # which has no directory "runs"
    command = r"`hf download org/model --revision step-20 --local-dir RUN_DIR/checkpoint-STEP`, and pass RUN_DIR"
    with pytest.raises(CheckpointError, match=rf"org/model@step-20: does not exist; .*{command}"):
        find_series(["org/model@step-20"])
    with pytest.raises(CheckpointError, match=r"runs/grpo: does not exist; .*`hf download runs/grpo --local-dir"):
        find_series(["runs/grpo"])
    with pytest.raises(CheckpointError, match="a/b/c: does not exist; pass a directory of checkpoints"):
        find_series(["a/b/c"])
