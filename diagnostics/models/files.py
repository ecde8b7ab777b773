"""Reads weights, adapters and tokenizers through transformers and peft, and refuses what these let pass.

``name`` is what errors call the model.
"""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from diagnostics.models.placement import Room, numbers_of
from diagnostics.records.errors import CheckpointError
from diagnostics.series.tokenizers import tokenizer_file
from diagnostics.series.weights import IncompleteCheckpointError, check_complete, weight_files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def is_local(path: str | Path) -> bool:
    """Whether ``path`` is meant as a directory, be it there or not; a hub name is OWNER/NAME or NAME."""
    if isinstance(path, Path) or Path(path).exists():
        return True
    return path.startswith((".", "/", "~")) or path.count("/") > 1


def require_files(path: Path, tokenizer_path: Path, *, name: str) -> None:
    """Raise ``CheckpointError`` unless there is a model in ``path`` and a tokenizer in ``tokenizer_path``."""
    if not (path / "config.json").is_file():
        raise CheckpointError(f"{path}: no config.json here; give a checkpoint directory such as RUN/checkpoint-1200")
    if tokenizer_file((tokenizer_path,)) is None:
        raise CheckpointError(f"{name}: tokenizer.json missing in {tokenizer_path}; copy the base model's")


def require_weights(path: Path) -> None:
    """Raise ``CheckpointError`` unless all weight files of the model in ``path`` are there at their full length."""
    try:
        files = weight_files(path)
        if not files:
            raise CheckpointError(f"{path}: no weights here, only a configuration; copy model.safetensors there")
        check_complete(files)
    except (IncompleteCheckpointError, OSError) as error:
        raise CheckpointError(f"{path}: {error}; copy or save the model anew") from error


def needs_code(path: str | Path) -> bool:
    """Whether transformers has no class for the model in ``path``.

    Where it has one, that is taken whether or not code lies beside the weights, so that two audits of the same files
    never draw from different models.
    """
    from transformers import PreTrainedConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    config, _ = PreTrainedConfig.get_config_dict(path, local_files_only=True)
    return config.get("model_type") not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def load_outline(path: str | Path) -> PreTrainedModel:
    """The model in ``path`` on torch's meta device: all of it but the numbers. Raises whatever transformers raises."""
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    with torch.device("meta"):
        model = cast("PreTrainedModel", AutoModelForCausalLM.from_config(config, trust_remote_code=False))
    with suppress(OSError):  # without this file the configuration speaks
        model.generation_config = GenerationConfig.from_pretrained(path)
    return model


def load_weights(
    path: str | Path,
    dtype: torch.dtype,
    *,
    name: str,
    local_files_only: bool,
    trust_remote_code: bool,
    room: Room | None = None,
) -> PreTrainedModel:
    """The model in ``path``, on the CPU, or spread over ``room``.

    Raises ``CheckpointError`` if a tensor is missing, else whatever transformers raises.
    """
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(  # a pair, which its annotation does not know
        path,
        dtype=dtype,
        local_files_only=local_files_only,
        trust_remote_code=trust_remote_code,  # None would ask on the terminal
        output_loading_info=True,
        **({} if room is None else {"device_map": "auto", "max_memory": dict(room)}),
    )
    model, report = loaded
    # transformers fills these with random numbers and goes on
    if missing := sorted(report["missing_keys"]):
        raise CheckpointError(
            f"{name}: {len(missing)} tensors missing in {path}, {missing[0]} among them; save the checkpoint anew"
        )
    return cast("PreTrainedModel", model)


def with_adapter(model: Any, adapter_path: Path, *, name: str, room: Room | None = None) -> Any:
    """``model`` with the adapter on top; factors in the model's precision, as vLLM has them.

    What multiplies weights (DoRA, IA³) moves them by less than a step of half precision, and stays in float32. A model
    that is spread over ``room`` is so again. Raises ``CheckpointError`` if the adapter belongs to another model.
    """
    from peft import PeftModel

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = json.loads((adapter_path / "adapter_config.json").read_text(encoding="utf-8"))
        factors = config.get("peft_type", "LORA") == "LORA" and not config.get("use_dora")
        in_halves = all(one.element_size() > 1 for one in model.parameters())  # float8 has no room for factors
        placed: dict[str, Any] = {} if room is None else {"max_memory": dict(room)}
        adapted = PeftModel.from_pretrained(
            model,
            str(adapter_path),
            local_files_only=True,
            autocast_adapter_dtype=not (factors and in_halves),
            **placed,
        )
    # peft only warns, and leaves the adapter at its random start
    missing = [str(warning.message) for warning in caught if "missing adapter keys" in str(warning.message)]
    if missing:
        raise CheckpointError(f"{name}: {missing[0][:160]}; the adapter belongs to another model")
    return adapted


def load_tokenizer(path: str | Path, *, local_files_only: bool, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """The tokenizer in ``path``. Raises whatever transformers raises."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, local_files_only=local_files_only, trust_remote_code=trust_remote_code)


def refuse_broken_numbers(model: PreTrainedModel, *, name: str) -> None:
    """Raise ``CheckpointError`` that names the first tensor with NaN or an infinite number."""
    for tensor_name, numbers in numbers_of(model):
        if not bool(torch.isfinite(numbers).all()):
            raise CheckpointError(
                f"{name}: {tensor_name} holds NaN or infinite numbers; the training diverged or the file is damaged: "
                "use another checkpoint"
            )
