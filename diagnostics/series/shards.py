"""Training states that hold a model in shards only, and the command that makes a loadable model of each.

DeepSpeed's ZeRO (``zero_pp_rank_*_model_states.pt``), FSDP through accelerate (``pytorch_model_fsdp_0``) and torch's
distributed checkpoints (``__0_0.distcp``). Trainers with converters of their own are in ``layouts``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from oversharp.diagnostics.records.amounts import plural

#: What DeepSpeed names its model states: of ZeRO-3 one file for each rank, of ZeRO-1 and 2 one for all.
_DEEPSPEED = "*mp_rank_*_model_states.pt"


def shard_obstacle(step: Path) -> str | None:
    """Return why the folder ``step`` cannot be read, as the rest of a sentence; None where it holds no such shards."""
    for why in (*_deepspeed(step), *_distributed(step), *_whole_state(step)):
        return why
    return None


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
    what = f"DeepSpeed ZeRO-3 shards ({plural(n_files, 'rank')}) only" if n_files else "DeepSpeed's training state only"
    yield f"holds {what}; {_settings_needed(step)}convert them: {command}"


def _newest_tag(step: Path) -> Path | None:
    """DeepSpeed's own folder inside a checkpoint: the one that its file ``latest`` names, else the last."""
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
    what = "FSDP shards" if named else "torch's distributed shards (DCP)"
    if not (folder / ".metadata").is_file():
        place = ".metadata" if folder == step else f"{folder.name}/.metadata"
        yield f"holds {what} without {place}, which torch writes last: it is still being written, or was interrupted"
        return
    command = shlex.join(["accelerate", "merge-weights", str(folder), str(step)])
    yield f"holds {what} only; {_settings_needed(step)}merge them: {command}"


def _whole_state(step: Path) -> Iterator[str]:
    """What accelerate saves with FULL_STATE_DICT and LOCAL_STATE_DICT: pickles of other names than a model's."""
    whole = step / "pytorch_model_fsdp.bin"
    ranks = sorted(step.glob("pytorch_model_fsdp_rank*.bin"))
    if whole.is_file():
        yield f"holds {whole.name} only; {_settings_needed(step)}{conversion_hint(whole, step / 'model.safetensors')}"
    elif ranks:
        yield (
            f"holds FSDP shards of {plural(len(ranks), 'rank')} (LOCAL_STATE_DICT) only, without a converter; resume "
            "the run and save with fsdp_state_dict_type SHARDED_STATE_DICT or FULL_STATE_DICT"
        )


def conversion_hint(file: Path, target: Path) -> str:
    """Return the words and the command that make safetensors of a pickle of tensors, for who trusts its author."""
    code = (
        "import torch, safetensors.torch as s; "
        f"s.save_file({{k: v.clone().contiguous() for k, v in torch.load({str(file)!r}, map_location='cpu', "
        f"weights_only=True).items()}}, {str(target)!r}, metadata={{'format': 'pt'}})"
    )
    return f"convert it to safetensors: python -c {shlex.quote(code)}"


def _settings_needed(step: Path) -> str:
    if (step / "config.json").is_file() or (step / "adapter_config.json").is_file():
        return ""
    return f"copy the base's config.json and tokenizer files to {step} and "


def _folders(step: Path) -> list[Path]:
    return sorted(folder for folder in step.iterdir() if folder.is_dir())
