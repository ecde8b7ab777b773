"""Finds the loadable model inside a step's folder for each trainer, and the command that makes one.

One function per trainer, asked in the order of ``_LAYOUTS``. docs/layouts.md says where each fact comes from.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oversharp.diagnostics.series.shards import shard_obstacle
from oversharp.diagnostics.series.weights import IncompleteCheckpointError, weight_files

#: What ``Series.layout`` says of folders that no trainer below is known to write.
PLAIN = "hf"
#: The same for shards of DeepSpeed, FSDP and torch without a file of a known trainer.
SHARDS = "shards"
#: Layout name of weights between a base and a checkpoint, and the file that marks them.
REPAIRED, REPAIR_RECORD = "repaired", "repair.json"

#: Folders inside a step's folder. A path that ends in these means the step around it.
INNER_FOLDERS = frozenset(
    {"actor", "adapter", "consolidated", "huggingface", "lora_adapter", "model", "policy", "trainer", "weights"}
)

#: Where OpenRLHF keeps DeepSpeed's training states.
_OPENRLHF_FOLDERS = ("_actor", "_critic")
_VERL_SHARD = re.compile(r"model_world_size_(\d+)_rank_\d+\.pt")


@dataclass(frozen=True, kw_only=True)
class CheckpointPlace:
    """Contents of the folder of one step.

    ``model`` is the folder of the model or adapter, maybe not there yet; ``under`` the model of an adapter, if it
    is in the same step. ``obstacle`` is the reason why no model can be read, as the rest of a sentence: a file that is
    still being written, or the command that converts weights that only the trainer reads.
    """

    layout: str
    model: Path
    under: Path | None = None
    obstacle: str = ""


def recognised(step: Path) -> CheckpointPlace:
    """Return the trainer that wrote the folder ``step``, and its model. Reads names and small JSON files."""
    step = step.absolute()
    places = (layout(step) for layout in _LAYOUTS)
    return next((place for place in places if place is not None), CheckpointPlace(layout=PLAIN, model=step))


def is_model(folder: Path) -> bool:
    """Return whether ``folder`` holds a model or an adapter, be it whole or not."""
    return any((folder / name).is_file() for name in ("config.json", "adapter_config.json")) or has_weights(folder)


def has_weights(folder: Path) -> bool:
    """Return whether ``folder`` holds weights of a model or an adapter, be they whole or not."""
    try:
        return bool(weight_files(folder) or weight_files(folder, adapter=True))
    except IncompleteCheckpointError:
        return True


# ---------------------------------------------------------------- verl


def merge_command(actor: Path, *, backend: str = "fsdp", tied: bool = False) -> str:
    """Return the shell command that merges verl's shards in ``actor`` into a model in the same folder.

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
    actor = _actor(step)
    model, manifest = actor / "model" / "huggingface", actor / "ckpt_contents.json"
    if (actor / "dist_ckpt").is_dir():  # before the manifest and the folders model/, optimizer/ and extra/
        return _older_megatron(actor)
    if not (manifest.is_file() or model.is_dir() or (actor / "model" / "dist_ckpt").is_dir()):
        return None
    if not manifest.is_file():
        return CheckpointPlace(layout="verl", model=model, obstacle=_unwritten("ckpt_contents.json", "verl"))
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
        layout="verl", model=model, obstacle=f"holds Megatron shards only; {needed}merge them: {command}"
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
        obstacle=f"holds an older verl's Megatron shards only; merge them, from its repository: {migrate} && {merge}",
    )


def _verl_fsdp(step: Path) -> CheckpointPlace | None:
    actor = _actor(step)
    merged = actor / "huggingface"
    shards = sorted(actor.glob("model_world_size_*_rank_*.pt"))
    adapter = _first_with_weights(merged / "lora_adapter", actor / "lora_adapter")
    model = _first_with_weights(merged, actor)
    if not (shards or adapter or merged.is_dir() or (model and actor != step)):
        return None
    if adapter:  # the model next to it is the base, which the merger leaves unchanged
        return CheckpointPlace(layout="verl", model=adapter, under=model)
    # hf_model writes names of the adapted model next to the shards of a LoRA run: no library loads that
    if not shards or (model and not _is_lora(actor)):
        return CheckpointPlace(layout="verl", model=model or merged)
    return CheckpointPlace(layout="verl", model=merged, obstacle=_shards_only(actor, shards))


def _shards_only(actor: Path, shards: list[Path]) -> str:
    match = _VERL_SHARD.fullmatch(shards[0].name)
    world = int(match[1]) if match else len(shards)
    if len(shards) < world:
        return f"holds {len(shards)} of {world} FSDP shards; the others are still being written, or lie on other nodes"
    if not (actor / "fsdp_config.json").is_file():
        command = _command(
            "python scripts/legacy_model_merger.py merge --backend fsdp --local_dir",
            actor, "--target_dir", actor / "huggingface",
        )  # fmt: skip
        return (
            "holds FSDP shards without fsdp_config.json: it is still being written, or of an older verl, whose shards "
            f"its repository merges: {command}"
        )
    what = "a LoRA adapter in FSDP shards" if _is_lora(actor) else "FSDP shards"
    return f"holds {what} only; merge them: {merge_command(actor)}"


def _is_lora(actor: Path) -> bool:
    return (actor / "lora_train_meta.json").is_file()


def _actor(step: Path) -> Path:
    """Return the model's folder: ``actor`` of the PPO trainer, the step's folder itself of the SFT trainer."""
    return step / "actor" if (step / "actor").is_dir() else step


# ---------------------------------------------------------------- the others


def _nemo_rl(step: Path) -> CheckpointPlace | None:
    weights = step / "policy" / "weights"
    if not (weights.is_dir() or (step / "training_info.json").is_file()):
        return None
    model = weights / "model"
    readable = _first_with_weights(model / "consolidated", model)  # a model, or the adapter of a LoRA run
    return CheckpointPlace(
        layout="nemo-rl", model=readable or model, obstacle="" if readable else _unconverted(step, weights)
    )


def _unconverted(step: Path, weights: Path) -> str:
    converters, config, out = "python examples/converters/", step / "config.yaml", step.with_name(f"{step.name}-hf")
    model = weights / "model"
    if iterations := sorted(weights.glob("iter_*")):
        command = _command(
            f"uv run --extra mcore {converters}convert_megatron_to_hf.py --config",
            config, "--megatron-ckpt-path", iterations[-1], "--hf-ckpt-path", out,
        )  # fmt: skip
        return f"holds Megatron shards only; convert them (LoRA: with convert_lora_to_hf.py): {command}"
    if (weights / ".metadata").is_file() or (model / ".metadata").is_file():
        command = _command(
            f"uv run {converters}convert_dcp_to_hf.py --config",
            config, "--dcp-ckpt-path", weights, "--hf-ckpt-path", out,
        )  # fmt: skip
        return f"holds DCP shards only; convert them: {command}"
    if (model / "consolidate.sh").is_file():
        command = _command("bash", model / "consolidate.sh")
        return f"holds safetensors shards only; join them, from Automodel's repository: {command}"
    if any(model.glob("*.safetensors")):
        command = _command(
            "python tools/offline_hf_consolidation.py --model-name NAME --input-dir",
            model, "--output-dir", model / "consolidated",
        )  # fmt: skip
        return (
            "holds safetensors shards only; join them, from Automodel's repository and with the NAME of the model that "
            f"was trained: {command}"
        )
    return "holds no policy/weights that NeMo-RL is known to write; pass a converted checkpoint"


def _skyrl(step: Path) -> CheckpointPlace | None:
    policy = step / "policy"
    if model := _first_with_weights(policy, policy / "huggingface"):
        return CheckpointPlace(layout="skyrl", model=model)
    adapter, complete = policy / "lora_adapter", (step / "trainer_state.pt").is_file()
    if has_weights(adapter):
        obstacle = "" if complete else _unwritten("trainer_state.pt", "SkyRL")
        return CheckpointPlace(layout="skyrl", model=adapter, obstacle=obstacle)
    if policy.is_dir() and (complete or _any(policy, "*.pt", "*.distcp")):
        return CheckpointPlace(
            layout="skyrl",
            model=policy,
            obstacle="holds the training state only, which SkyRL has no converter for; train with "
            "trainer.hf_save_interval and pass the trainer.export_path",
        )
    if not (policy.is_dir() and re.fullmatch(r"global_step_\d+", step.name)):
        return None
    return CheckpointPlace(layout="skyrl", model=policy, obstacle="is still being exported (policy holds no weights)")


def _prime_rl(step: Path) -> CheckpointPlace | None:
    if not re.fullmatch(r"step_\d+", step.name):
        return None
    if step.parent.name in ("weights", "broadcasts"):
        if not (step / "STABLE").is_file():
            return CheckpointPlace(layout="prime-rl", model=step, obstacle=_unwritten("STABLE", "prime-rl"))
        bare = has_weights(step) and not any((step / f"{kind}config.json").is_file() for kind in ("", "adapter_"))
        obstacle = "is a weight broadcast; copy the base's config.json and tokenizer files there" if bare else ""
        return CheckpointPlace(layout="prime-rl", model=step, obstacle=obstacle)
    if not (step / "trainer").is_dir():
        return None
    converted, command = step / "weights", _command("uv run python tools/convert_dcp_to_bf16.py", step)
    obstacle = f"holds DCP shards only; convert them, from prime-rl's repository: {command}"
    if has_weights(converted):
        obstacle = ""
    elif not (step / "trainer" / ".metadata").is_file():  # torch writes it when every rank's shards are there
        obstacle = _unwritten("trainer/.metadata", "prime-rl")
    return CheckpointPlace(layout="prime-rl", model=converted, obstacle=obstacle)


def _openrlhf(step: Path) -> CheckpointPlace | None:
    if not re.fullmatch(r"(?:best_)?global_step\d+(?:_hf)?", step.name):
        return None
    if step.name.endswith("_hf"):
        return CheckpointPlace(layout="openrlhf", model=step)
    if step.parent.name not in _OPENRLHF_FOLDERS or not _any(step, "*_model_states.pt", "*_optim_states.pt"):
        return None
    return CheckpointPlace(
        layout="openrlhf",
        model=step,
        obstacle="holds DeepSpeed's training state, which only OpenRLHF loads; train with --ckpt.save_hf, "
        "which writes global_stepN_hf next to _actor",
    )


def _slime(step: Path) -> CheckpointPlace | None:
    if not re.fullmatch(r"iter_\d+", step.name):
        return None
    if is_model(step):
        return CheckpointPlace(layout="slime", model=step)
    if not _any(step, "*.distcp", ".metadata", "common.pt", "mp_rank_*"):
        return None
    command = _command(
        "python tools/convert_torch_dist_to_hf.py --input-dir",
        step, "--output-dir", step.with_name(f"{step.name}_hf"), "--origin-hf-dir", "BASE",
    )  # fmt: skip
    return CheckpointPlace(
        layout="slime",
        model=step,
        obstacle="holds Megatron shards only; train with --save-hf, or convert them, from slime's repository and with "
        f"the model that was trained as BASE: {command}",
    )


def _trl(step: Path) -> CheckpointPlace | None:
    is_trl = (step / "trainer_state.json").is_file()
    if step.is_dir() and not has_weights(step) and (obstacle := shard_obstacle(step)):
        return CheckpointPlace(layout="trl" if is_trl else SHARDS, model=step, obstacle=obstacle)
    return CheckpointPlace(layout="trl", model=step) if is_trl else None


_LAYOUTS = (_verl_megatron, _verl_fsdp, _nemo_rl, _skyrl, _prime_rl, _openrlhf, _slime, _trl)


# ---------------------------------------------------------------- reading


def _unwritten(marker: str, trainer: str) -> str:
    return f"is still being written ({marker} missing, which {trainer} writes last)"


def _command(words: str, *more: str | Path) -> str:
    """Return a line for the shell; ``more`` may hold spaces."""
    return f"{words} {shlex.join(map(str, more))}"


def _first_with_weights(*folders: Path) -> Path | None:
    return next((folder for folder in folders if has_weights(folder)), None)


def _any(folder: Path, *patterns: str) -> bool:
    return any(True for pattern in patterns for _ in folder.glob(pattern))


def _json(path: Path) -> dict[str, Any]:
    """Return the object in ``path``; empty where there is none: what cannot be read here decides nothing."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
