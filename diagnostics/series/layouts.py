"""Find the model in a step's folder for each trainer, or the command that converts it.

There is one function per trainer, called in the order of ``_LAYOUTS``. docs/layouts.md has the sources. Some shards do
not reveal their trainer: DeepSpeed's ZeRO (``zero_pp_rank_*_model_states.pt``), FSDP through accelerate
(``pytorch_model_fsdp_0``) and torch's distributed checkpoints (``__0_0.distcp``).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.series.weights import IncompleteCheckpointError, weight_files

#: Layout of models whose trainer is unknown.
PLAIN = "hf"
#: Layout of shards whose trainer is unknown.
SHARDS = "shards"
#: Layout of a series written by ``oversharp repair``, and its marker file.
REPAIRED, REPAIR_RECORD = "repaired", "repair.json"

#: Folders inside a step's folder. A path that ends in one of them refers to the step's folder.
INNER_FOLDERS = frozenset(
    {"actor", "adapter", "consolidated", "huggingface", "lora_adapter", "model", "policy", "trainer", "weights"}
)

#: Folders in which OpenRLHF stores DeepSpeed's training states.
_OPENRLHF_FOLDERS = ("_actor", "_critic")
#: DeepSpeed's model states: one file per rank for ZeRO-3, a single file for ZeRO-1 and 2.
_DEEPSPEED = "*mp_rank_*_model_states.pt"
_VERL_SHARD = re.compile(r"model_world_size_(\d+)_rank_\d+\.pt")


@dataclass(frozen=True, kw_only=True)
class CheckpointPlace:
    """Contents of the folder of one step.

    ``model`` is the folder of the model or adapter, which may not exist yet. ``under`` is an adapter's model, if it is
    in the same step. ``obstacle`` is the reason why no model can be read, as the end of a sentence: a file is still
    being written, or a command must convert the trainer's format.
    """

    layout: str
    model: Path
    under: Path | None = None
    obstacle: str = ""


def find_place(step: Path) -> CheckpointPlace:
    """Return the layout and the model of the folder ``step``. Reads only names and small JSON files."""
    step = step.absolute()
    places = (layout(step) for layout in _LAYOUTS)
    return next((place for place in places if place is not None), CheckpointPlace(layout=PLAIN, model=step))


def is_model(folder: Path) -> bool:
    """Return whether ``folder`` contains a model or an adapter, possibly incomplete."""
    return any((folder / name).is_file() for name in ("config.json", "adapter_config.json")) or has_weights(folder)


def has_weights(folder: Path) -> bool:
    """Return whether ``folder`` contains weights of a model or an adapter, possibly incomplete."""
    try:
        return bool(weight_files(folder) or weight_files(folder, adapter=True))
    except IncompleteCheckpointError:
        return True


# ---------------------------------------------------------------- verl


def merge_command(actor: Path, *, backend: str = "fsdp", tied: bool = False) -> str:
    """Return the shell command that merges verl's shards in ``actor`` into a model.

    >>> merge_command(Path("/run/global_step_5/actor"))
    'python -m verl.model_merger merge --backend fsdp --local_dir /run/global_step_5/actor
    --target_dir /run/global_step_5/actor/huggingface'
    """
    target = actor / ("model/huggingface" if backend == "megatron" else "huggingface")
    tie = ["--tie-word-embedding"] if tied else []
    return _command(
        "python -m verl.model_merger merge --backend", backend, *tie, "--local_dir", actor, "--target_dir", target
    )


def _verl_megatron(step: Path) -> CheckpointPlace | None:
    actor = _actor_folder(step)
    model, manifest = actor / "model" / "huggingface", actor / "ckpt_contents.json"
    if (actor / "dist_ckpt").is_dir():  # verl before 0.9 has no manifest
        return _older_megatron(actor)
    if not (manifest.is_file() or model.is_dir() or (actor / "model" / "dist_ckpt").is_dir()):
        return None
    if not manifest.is_file():
        return CheckpointPlace(layout="verl", model=model, obstacle=_missing_marker("ckpt_contents.json", "verl"))
    adapter = model / "adapter"
    if has_weights(adapter):
        return CheckpointPlace(layout="verl", model=adapter, under=_first_with_weights(model))
    backend = _json(manifest).get("backend")
    if isinstance(backend, dict) and backend.get("peft"):
        return CheckpointPlace(
            layout="verl",
            model=model,
            obstacle="is a LoRA checkpoint with its adapter in Megatron shards only, next to the unmodified base; "
            "train with actor_rollout_ref.actor.megatron.vanilla_mbridge=False, which saves model/huggingface/adapter",
        )
    if has_weights(model):
        return CheckpointPlace(layout="verl", model=model)
    config = _json(model / "config.json")
    needed = "" if config else f"copy the base's config.json and tokenizer files to {model} and "
    command = merge_command(actor, backend="megatron", tied=bool(config.get("tie_word_embeddings")))
    return CheckpointPlace(
        layout="verl", model=model, obstacle=f"contains Megatron shards only; {needed}merge them: {command}"
    )


def _older_megatron(actor: Path) -> CheckpointPlace:
    model = actor / "huggingface"
    if has_weights(model):
        return CheckpointPlace(layout="verl", model=model)
    migrate = _command("python scripts/migrate_megatron_checkpoint_layout.py --checkpoint", actor)
    tied = bool(_json(model / "config.json").get("tie_word_embeddings"))
    merge = merge_command(actor, backend="megatron", tied=tied)
    return CheckpointPlace(
        layout="verl",
        model=model,
        obstacle="contains an older verl's Megatron shards only; merge them, from its repository: "
        f"{migrate} && {merge}",
    )


def _verl_fsdp(step: Path) -> CheckpointPlace | None:
    actor = _actor_folder(step)
    merged = actor / "huggingface"
    shards = sorted(actor.glob("model_world_size_*_rank_*.pt"))
    adapter = _first_with_weights(merged / "lora_adapter", actor / "lora_adapter")
    model = _first_with_weights(merged, actor)
    if not (shards or adapter or merged.is_dir() or (model and actor != step)):
        return None
    if adapter:  # the model next to the adapter is the base, which the merger leaves unchanged
        return CheckpointPlace(layout="verl", model=adapter, under=model)
    # in a LoRA run, hf_model has tensor names that no library can load
    if not shards or (model and not _is_lora(actor)):
        return CheckpointPlace(layout="verl", model=model or merged)
    return CheckpointPlace(layout="verl", model=merged, obstacle=_fsdp_obstacle(actor, shards))


def _fsdp_obstacle(actor: Path, shards: list[Path]) -> str:
    match = _VERL_SHARD.fullmatch(shards[0].name)
    world = int(match[1]) if match else len(shards)
    if len(shards) < world:
        return (
            f"contains {len(shards)} of {world} FSDP shards; the others are still being written, or are on other nodes"
        )
    if not (actor / "fsdp_config.json").is_file():
        command = _command(
            "python scripts/legacy_model_merger.py merge --backend fsdp --local_dir",
            actor, "--target_dir", actor / "huggingface",
        )  # fmt: skip
        return (
            "contains FSDP shards without fsdp_config.json: it is still being written, or an older verl wrote it; "
            f"merge an older verl's shards from its repository: {command}"
        )
    content = "a LoRA adapter in FSDP shards" if _is_lora(actor) else "FSDP shards"
    return f"contains {content} only; merge them: {merge_command(actor)}"


def _is_lora(actor: Path) -> bool:
    return (actor / "lora_train_meta.json").is_file()


def _actor_folder(step: Path) -> Path:
    """Return the model's folder: ``actor`` for the PPO trainer, ``step`` for the SFT trainer."""
    return step / "actor" if (step / "actor").is_dir() else step


# ---------------------------------------------------------------- the others


def _nemo_rl(step: Path) -> CheckpointPlace | None:
    weights = step / "policy" / "weights"
    if not (weights.is_dir() or (step / "training_info.json").is_file()):
        return None
    model = weights / "model"
    readable = _first_with_weights(model / "consolidated", model)  # a full model, or the adapter of a LoRA run
    return CheckpointPlace(
        layout="nemo-rl", model=readable or model, obstacle="" if readable else _nemo_obstacle(step, weights)
    )


def _nemo_obstacle(step: Path, weights: Path) -> str:
    converters, config, out = "python examples/converters/", step / "config.yaml", step.with_name(f"{step.name}-hf")
    model = weights / "model"
    if iterations := sorted(weights.glob("iter_*")):
        command = _command(
            f"uv run --extra mcore {converters}convert_megatron_to_hf.py --config",
            config, "--megatron-ckpt-path", iterations[-1], "--hf-ckpt-path", out,
        )  # fmt: skip
        return f"contains Megatron shards only; convert them (LoRA: with convert_lora_to_hf.py): {command}"
    if (weights / ".metadata").is_file() or (model / ".metadata").is_file():
        command = _command(
            f"uv run {converters}convert_dcp_to_hf.py --config",
            config, "--dcp-ckpt-path", weights, "--hf-ckpt-path", out,
        )  # fmt: skip
        return f"contains DCP shards only; convert them: {command}"
    if (model / "consolidate.sh").is_file():
        command = _command("bash", model / "consolidate.sh")
        return f"contains safetensors shards only; join them, from Automodel's repository: {command}"
    if any(model.glob("*.safetensors")):
        command = _command(
            "python tools/offline_hf_consolidation.py --model-name NAME --input-dir",
            model, "--output-dir", model / "consolidated",
        )  # fmt: skip
        return (
            "contains safetensors shards only; join them, from Automodel's repository, where NAME is the trained "
            f"model's: {command}"
        )
    return "has an unrecognized format in policy/weights; pass a converted checkpoint"


def _skyrl(step: Path) -> CheckpointPlace | None:
    policy = step / "policy"
    if model := _first_with_weights(policy, policy / "huggingface"):
        return CheckpointPlace(layout="skyrl", model=model)
    adapter, complete = policy / "lora_adapter", (step / "trainer_state.pt").is_file()
    if has_weights(adapter):
        obstacle = "" if complete else _missing_marker("trainer_state.pt", "SkyRL")
        return CheckpointPlace(layout="skyrl", model=adapter, obstacle=obstacle)
    if policy.is_dir() and (complete or _contains(policy, "*.pt", "*.distcp")):
        return CheckpointPlace(
            layout="skyrl",
            model=policy,
            obstacle="contains the training state only, for which SkyRL has no converter; train with "
            "trainer.hf_save_interval and pass the trainer.export_path",
        )
    if not (policy.is_dir() and re.fullmatch(r"global_step_\d+", step.name)):
        return None
    return CheckpointPlace(layout="skyrl", model=policy, obstacle="is still being exported (no weights in policy)")


def _prime_rl(step: Path) -> CheckpointPlace | None:
    if not re.fullmatch(r"step_\d+", step.name):
        return None
    if step.parent.name in ("weights", "broadcasts"):
        if not (step / "STABLE").is_file():
            return CheckpointPlace(layout="prime-rl", model=step, obstacle=_missing_marker("STABLE", "prime-rl"))
        bare = has_weights(step) and not any((step / f"{kind}config.json").is_file() for kind in ("", "adapter_"))
        obstacle = "is a weight broadcast; copy the base's config.json and tokenizer files there" if bare else ""
        return CheckpointPlace(layout="prime-rl", model=step, obstacle=obstacle)
    if not (step / "trainer").is_dir():
        return None
    converted, command = step / "weights", _command("uv run python tools/convert_dcp_to_bf16.py", step)
    obstacle = f"contains DCP shards only; convert them, from prime-rl's repository: {command}"
    if has_weights(converted):
        obstacle = ""
    elif not (step / "trainer" / ".metadata").is_file():  # torch writes this file after the shards of all ranks
        obstacle = _missing_marker("trainer/.metadata", "prime-rl")
    return CheckpointPlace(layout="prime-rl", model=converted, obstacle=obstacle)


def _openrlhf(step: Path) -> CheckpointPlace | None:
    if not re.fullmatch(r"(?:best_)?global_step\d+(?:_hf)?", step.name):
        return None
    if step.name.endswith("_hf"):
        return CheckpointPlace(layout="openrlhf", model=step)
    if step.parent.name not in _OPENRLHF_FOLDERS or not _contains(step, "*_model_states.pt", "*_optim_states.pt"):
        return None
    return CheckpointPlace(
        layout="openrlhf",
        model=step,
        obstacle="contains DeepSpeed's training state, which only OpenRLHF loads; train with --ckpt.save_hf, "
        "which writes global_stepN_hf next to _actor",
    )


def _slime(step: Path) -> CheckpointPlace | None:
    if not re.fullmatch(r"iter_\d+", step.name):
        return None
    if is_model(step):
        return CheckpointPlace(layout="slime", model=step)
    if not _contains(step, "*.distcp", ".metadata", "common.pt", "mp_rank_*"):
        return None
    command = _command(
        "python tools/convert_torch_dist_to_hf.py --input-dir",
        step, "--output-dir", step.with_name(f"{step.name}_hf"), "--origin-hf-dir", "BASE",
    )  # fmt: skip
    return CheckpointPlace(
        layout="slime",
        model=step,
        obstacle="contains Megatron shards only; train with --save-hf, or convert them, from slime's repository, where "
        f"BASE is the base model: {command}",
    )


def _trl(step: Path) -> CheckpointPlace | None:
    is_trl = (step / "trainer_state.json").is_file()
    if step.is_dir() and not has_weights(step) and (obstacle := _shard_obstacle(step)):
        return CheckpointPlace(layout="trl" if is_trl else SHARDS, model=step, obstacle=obstacle)
    return CheckpointPlace(layout="trl", model=step) if is_trl else None


_LAYOUTS = (_verl_megatron, _verl_fsdp, _nemo_rl, _skyrl, _prime_rl, _openrlhf, _slime, _trl)


# ---------------------------------------------------------------- shards of an unknown trainer


def _shard_obstacle(step: Path) -> str | None:
    """Return why shards of an unknown trainer cannot be read; None if ``step`` has no such shards."""
    return next((reason for reason in (*_deepspeed(step), *_distributed(step), *_accelerate(step))), None)


def _deepspeed(step: Path) -> Iterator[str]:
    tag = step if any(step.glob(_DEEPSPEED)) else _newest_tag(step)
    if tag is None:
        return
    run = tag.parent
    script = next(
        (folder / "zero_to_fp32.py" for folder in (step, run) if (folder / "zero_to_fp32.py").is_file()), None
    )
    program = ["python", str(script)] if script else ["python", "-m", "deepspeed.utils.zero_to_fp32"]
    command = shlex.join([*program, str(run), str(step), "--tag", tag.name, "--safe_serialization"])
    n_files = len(list(tag.glob("zero_pp_rank_*_model_states.pt")))
    content = f"DeepSpeed ZeRO-3 shards ({plural(n_files, 'rank')})" if n_files else "DeepSpeed's training state"
    yield f"contains {content} only; {_copy_hint(step)}convert them: {command}"


def _newest_tag(step: Path) -> Path | None:
    """Return DeepSpeed's folder in a checkpoint: the one in the file ``latest``, else the last one."""
    tags = [folder for folder in _folders(step) if any(folder.glob(_DEEPSPEED))]
    latest = step / "latest"
    named = latest.read_bytes()[:200].decode(errors="replace").strip() if latest.is_file() else ""
    return next((tag for tag in tags if tag.name == named), tags[-1] if tags else None)


def _distributed(step: Path) -> Iterator[str]:
    shards = [folder for folder in (step, *_folders(step)) if any(folder.glob("*.distcp"))]
    shards = [folder for folder in shards if not folder.name.startswith("optimizer")]
    if not shards:
        return
    named = [folder for folder in shards if folder.name.startswith("pytorch_model_fsdp")]
    folder = (named or shards)[0]
    content = "FSDP shards" if named else "torch's distributed shards (DCP)"
    if not (folder / ".metadata").is_file():
        place = ".metadata" if folder == step else f"{folder.name}/.metadata"
        yield f"contains {content} without {place}, which torch writes last: it is still being written or incomplete"
        return
    command = shlex.join(["accelerate", "merge-weights", str(folder), str(step)])
    yield f"contains {content} only; {_copy_hint(step)}merge them: {command}"


def _accelerate(step: Path) -> Iterator[str]:
    """Yield why pickles that accelerate saved (FULL_STATE_DICT, LOCAL_STATE_DICT) cannot be read."""
    whole = step / "pytorch_model_fsdp.bin"
    ranks = sorted(step.glob("pytorch_model_fsdp_rank*.bin"))
    if whole.is_file():
        yield f"contains {whole.name} only; {_copy_hint(step)}{conversion_hint(whole, step / 'model.safetensors')}"
    elif ranks:
        yield (
            f"contains FSDP shards of {plural(len(ranks), 'rank')} (LOCAL_STATE_DICT) only, for which there is no "
            "converter; resume the run and save with fsdp_state_dict_type SHARDED_STATE_DICT or FULL_STATE_DICT"
        )


def conversion_hint(file: Path, target: Path) -> str:
    """Return a hint with the command that converts a pickle of tensors to safetensors."""
    code = (
        "import torch, safetensors.torch as s; "
        f"s.save_file({{k: v.clone().contiguous() for k, v in torch.load({str(file)!r}, map_location='cpu', "
        f"weights_only=True).items()}}, {str(target)!r}, metadata={{'format': 'pt'}})"
    )
    return f"convert it to safetensors: python -c {shlex.quote(code)}"


def _copy_hint(step: Path) -> str:
    if (step / "config.json").is_file() or (step / "adapter_config.json").is_file():
        return ""
    return f"copy the base's config.json and tokenizer files to {step} and "


def _folders(step: Path) -> list[Path]:
    return sorted(folder for folder in step.iterdir() if folder.is_dir())


# ---------------------------------------------------------------- reading


def _missing_marker(marker: str, trainer: str) -> str:
    return f"is still being written ({marker} missing, which {trainer} writes last)"


def _command(words: str, *more: str | Path) -> str:
    """Return a shell command. ``more`` is appended unquoted and may contain spaces."""
    return f"{words} {shlex.join(map(str, more))}"


def _first_with_weights(*folders: Path) -> Path | None:
    return next((folder for folder in folders if has_weights(folder)), None)


def _contains(folder: Path, *patterns: str) -> bool:
    return any(True for pattern in patterns for _ in folder.glob(pattern))


def _json(path: Path) -> dict[str, Any]:
    """Return the object in the JSON file ``path``; empty if it cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
