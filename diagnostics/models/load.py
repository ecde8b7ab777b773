"""Load causal language models with tokenizers, from a directory or the Hugging Face hub."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from logging import ERROR, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from oversharp.diagnostics.models.files import (
    apply_adapter,
    is_local,
    load_outline,
    load_tokenizer,
    load_weights,
    needs_code,
    refuse_broken_numbers,
    require_config,
    require_files,
    require_weights,
)
from oversharp.diagnostics.models.placement import Room, find_room
from oversharp.diagnostics.records.errors import CheckpointError, OversharpError, first_line
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.series.folders import locate_model
from oversharp.diagnostics.series.tokenizers import find_tokenizer
from oversharp.diagnostics.series.weights import stored_tensors, weight_files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


Dtype = Literal["float32", "bfloat16", "float16"]

#: Values of peft's ``init_lora_weights`` that leave the base weights unchanged.
_PLAIN_INITS = (True, False, "gaussian")


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A causal language model in evaluation mode on ``device``, and its tokenizer.

    Attributes:
        end_ids: tokens that end a response. The tokenizer's end token comes first.
        pad_id: token at masked positions.
        context_tokens: maximum sequence length, None without a limit.
        vocabulary_size: number of rows of the embedding. It may exceed the tokenizer's vocabulary.
        stated_ends: end tokens in the model's generation config.
        room: memory limits by device of a distributed model, None for a model on one device. A distributed model takes
            tokens and returns logits on its first GPU. It supports only forward passes and cannot be moved.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    end_ids: tuple[int, ...]
    pad_id: int
    context_tokens: int | None
    vocabulary_size: int
    stated_ends: tuple[int, ...] = ()
    room: Room | None = None


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers, accelerate and huggingface_hub inside the block."""
    from transformers.utils import logging

    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    others = [getLogger(name) for name in ("accelerate.big_modeling", "huggingface_hub")]
    levels = [other.level for other in others]
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    for other in others:
        other.setLevel(ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        for other, level in zip(others, levels, strict=True):
            other.setLevel(level)
        if bars:
            logging.enable_progress_bar()


def load_model(
    checkpoint: Checkpoint,
    *,
    device: torch.device,
    dtype: Dtype,
    trust_remote_code: bool = False,
    engine_share: float = 0.0,
) -> LoadedModel:
    """Load a checkpoint for the audit from local files.

    An adapter is loaded with its base model. The checkpoint's sampling defaults (temperature, repetition penalty, …)
    are dropped, because only the audit's settings apply. Router logits of a mixture of experts are disabled: its
    balance loss is not needed, and it fails if a pass continues from a KV cache. A model that does not fit one GPU is
    distributed, and ``engine_share`` of every GPU is kept free. Raises ``CheckpointError`` for the same reasons as
    ``load_path``.
    """
    from transformers import GenerationConfig

    loaded = load_path(
        checkpoint.base_path or checkpoint.path,
        device=device,
        dtype=dtype,
        label=checkpoint.label,
        tokenizer_path=_tokenizer_folder(checkpoint),
        adapter_path=checkpoint.path if checkpoint.kind == "lora" else None,
        local_files_only=True,
        trust_remote_code=trust_remote_code,
        reserved_share=engine_share,
    )
    model: Any = loaded.model
    inner = model.get_base_model() if checkpoint.kind == "lora" else model
    inner.generation_config = GenerationConfig()
    for config in (inner.config, inner.config.get_text_config()):
        if getattr(config, "output_router_logits", False):
            config.output_router_logits = False
    if (head := inner.get_output_embeddings()) is not None:
        head.register_forward_pre_hook(_copy_contiguous)
    return loaded


def _copy_contiguous(_head: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Copy the hidden states of selected positions to contiguous memory.

    Without gradients, torch multiplies a non-contiguous slice row by row, and copies the weights for every row. For 38
    responses of SmolLM2-135M with an adapter, that took 2.1 GiB.
    """
    return (inputs[0].contiguous(), *inputs[1:])


def reload_adapter(loaded: LoadedModel, previous: Checkpoint, checkpoint: Checkpoint) -> LoadedModel | None:
    """Load ``checkpoint`` on the base weights that it shares with ``previous``.

    So these weights are read only once. ``loaded`` is the model of ``previous``. It must not be used afterwards. If the
    base weights cannot be reused, the function returns None and leaves ``loaded`` unchanged. This is the case for full
    models, for adapters of other models, and after an adapter that changed its base weights. Raises ``CheckpointError``
    for the same reasons as ``load_path``.
    """
    under = (checkpoint.base_path or checkpoint.path).resolve()
    same = (previous.base_path or previous.path).resolve() == under and "lora" in (previous.kind, checkpoint.kind)
    if loaded.room is not None:  # the layers have accelerate's hooks
        return None
    if not same or not _keeps_base_weights(previous):
        return None
    model: Any = loaded.model
    base = model.unload() if previous.kind == "lora" else model
    with _load_errors(f"{checkpoint.label}: {checkpoint.path}", local=True):
        tokenizer_source = _tokenizer_folder(checkpoint)
        tokenizer = load_tokenizer(tokenizer_source, local_files_only=True, trust_remote_code=False)
        if checkpoint.kind == "lora":
            require_files(under, tokenizer_source, name=checkpoint.label)
            base = apply_adapter(base, checkpoint.path, name=checkpoint.label)
        else:
            for parameter in base.parameters():  # peft froze them when the adapter was applied
                parameter.requires_grad_(parameter.is_floating_point())
        base.to(loaded.device)
        base.eval()
    name = checkpoint.label
    refuse_broken_numbers(base, name=name)
    return _make_loaded(
        base, tokenizer, loaded.stated_ends, device=loaded.device, name=name, tokenizer_source=tokenizer_source
    )


def _keeps_base_weights(checkpoint: Checkpoint) -> bool:
    """Return whether removing the checkpoint's adapter restores its base weights.

    Removing an adapter does not undo trained biases and embeddings, nor initialisations that change the base weights
    (PiSSA, OLoRA, CorDA, LoftQ). So the function returns True only for full models and known LoRA adapters.
    """
    if checkpoint.kind != "lora":
        return True
    config = json.loads((checkpoint.path / "adapter_config.json").read_text(encoding="utf-8"))
    tensors = stored_tensors(weight_files(checkpoint.path, adapter=True))
    is_plain = (
        config.get("peft_type", "LORA") == "LORA"
        and config.get("bias", "none") == "none"
        and config.get("init_lora_weights", True) in _PLAIN_INITS
        and not config.get("layer_replication")
    )
    return is_plain and bool(tensors) and all(".lora_" in tensor.name for tensor in tensors)


def load_own_tokenizer(checkpoint: Checkpoint, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a checkpoint, without its model. Raises ``CheckpointError``."""
    folder = _tokenizer_folder(checkpoint)
    with _load_errors(f"{checkpoint.label}: the tokenizer in {folder}", local=True):
        return load_tokenizer(folder, local_files_only=True, trust_remote_code=trust_remote_code)


def _tokenizer_folder(checkpoint: Checkpoint) -> Path:
    own = find_tokenizer(checkpoint)
    return checkpoint.path if own is None else own.parent


def load_path(
    path: str | Path,
    *,
    device: torch.device,
    dtype: Dtype,
    label: str | None = None,
    tokenizer_path: Path | None = None,
    adapter_path: Path | None = None,
    local_files_only: bool = False,
    trust_remote_code: bool = False,
    reserved_share: float | None = None,
) -> LoadedModel:
    """Load the model of a directory or hub name with its tokenizer and, if given, an adapter.

    The generation config is kept, so ``save_pretrained`` writes it again.

    Args:
        label: the model's name in error messages; default: ``path``.
        tokenizer_path: folder of the tokenizer; default: ``path``.
        trust_remote_code: run code from the model's folder if transformers has no class for the model. Without it, such
            a model is an error.
        reserved_share: a local model that does not fit one GPU is distributed over GPUs and CPU memory, and this share
            of each GPU is kept free. If None, the model must fit on one device.

    Raises:
        CheckpointError: a file cannot be loaded, a tensor is missing or not finite, the tokenizer belongs to another
            model, or there is no end token.
    """
    name = label or str(path)
    tokenizer_source = tokenizer_path or path
    local = is_local(path)
    if local:
        path = Path(path).expanduser()
        tokenizer_source = tokenizer_path or path
        require_files(path, Path(tokenizer_source), name=name)
    with _load_errors(str(path) if label is None else f"{label}: {adapter_path or path}", local=local):
        trust_remote_code = trust_remote_code and needs_code(path)
        room = None
        if local and reserved_share is not None:
            room = find_room(path, getattr(torch, dtype), device, engine_share=reserved_share, name=name)
        model = load_weights(
            path,
            getattr(torch, dtype),
            name=name,
            local_files_only=local_files_only,
            trust_remote_code=trust_remote_code,
            room=room,
        )
        of_model = _stated_end_ids(model)
        if adapter_path is not None:
            model = apply_adapter(model, adapter_path, name=name, room=room)
        tokenizer = load_tokenizer(
            tokenizer_source, local_files_only=local_files_only, trust_remote_code=trust_remote_code
        )
        if room is None:
            model.to(device)  # type: ignore[arg-type]  # the stub binds a wrapped method to its class
        model.eval()
    refuse_broken_numbers(model, name=name)
    return _make_loaded(
        model, tokenizer, of_model, device=device, name=name, tokenizer_source=tokenizer_source, room=room
    )


def outline_path(path: str | Path) -> LoadedModel:
    """Return the same as ``load_path``, but with a model on the meta device, without weights.

    For a hub name, configuration and tokenizer are downloaded if they are not in the cache. Raises ``CheckpointError``
    as ``load_path``, except for faults in the content of the weights.
    """
    from huggingface_hub import is_offline_mode

    name, local = str(path), is_local(path)
    if local:
        path = Path(path).expanduser()
        require_files(path, path, name=name)
    with _load_errors(name, local=local):
        model = load_outline(path)
        tokenizer = load_tokenizer(path, local_files_only=False, trust_remote_code=False)
    if local or is_offline_mode():  # otherwise missing files can be downloaded later
        require_weights(model_folder(path))
    device = torch.device("meta")
    return _make_loaded(model, tokenizer, _stated_end_ids(model), device=device, name=name, tokenizer_source=path)


def empty_model(path: str | Path) -> PreTrainedModel:
    """Return the model of a config.json on the meta device, without weights.

    Raises ``CheckpointError``.
    """
    local = is_local(path)
    if local:
        path = Path(path).expanduser()
        require_config(path)
    with _load_errors(str(path), local=local):
        return load_outline(path)


def model_folder(path: str | Path) -> Path:
    """Return the directory of a model. For a hub name, this is its directory in the hub's cache.

    Raises ``CheckpointError`` if the model's files are not on this machine.
    """
    folder = Path(path).expanduser() if is_local(path) else locate_model(str(path))
    if folder is None:
        raise CheckpointError(f"{path}: not in the hub's cache on this machine; pass the model's directory")
    return folder


@contextmanager
def _load_errors(what: str, *, local: bool) -> Iterator[None]:
    """Silence transformers inside the block; raise library errors as ``CheckpointError``."""
    try:
        with quiet_transformers():
            yield
    except OversharpError:
        raise
    except torch.OutOfMemoryError as error:
        raise CheckpointError(
            f"{what} does not fit the GPU ({first_line(error)}); stop other programs on the GPU, pass --dtype "
            "bfloat16, or use a larger GPU"
        ) from error
    except Exception as error:  # these libraries may raise any error for broken files
        if "trust_remote_code" in str(error):
            raise CheckpointError(
                f"{what} needs separate modelling code; if you trust its author, pass --trust-remote-code to "
                "`oversharp audit` or `oversharp confirm`: the code runs with your rights on this machine"
            ) from error
        hint = "check its files, or use another checkpoint" if local else "check the name, or pass a directory"
        raise CheckpointError(f"{what} cannot be loaded ({first_line(error)}); {hint}") from error


def _make_loaded(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    of_model: Sequence[Any],
    *,
    device: torch.device,
    name: str,
    tokenizer_source: str | Path,
    room: Room | None = None,
) -> LoadedModel:
    """Return the ``LoadedModel`` of a model and its tokenizer.

    Raises ``CheckpointError`` if the tokenizer belongs to another model, or if there is no end token.
    """
    embedding: Any = model.get_input_embeddings()
    vocabulary_size = int(embedding.weight.shape[0])
    if tokenizer.vocab_size > vocabulary_size:
        raise CheckpointError(
            f"{name}: the tokenizer has {tokenizer.vocab_size:,} tokens, the model {vocabulary_size:,}; "
            f"{tokenizer_source} contains the tokenizer of another model: copy this model's tokenizer there"
        )
    end_ids = find_end_ids(tokenizer, of_model, vocabulary_size, name=name)
    pad_id = tokenizer.pad_token_id
    if pad_id is None or pad_id >= vocabulary_size:
        pad_id = end_ids[0]
    context_tokens = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        device=device,
        end_ids=end_ids,
        pad_id=int(pad_id),
        context_tokens=context_tokens,
        vocabulary_size=vocabulary_size,
        stated_ends=tuple(of_model),
        room=room,
    )


def _stated_end_ids(model: Any) -> list[Any]:
    """Return the end tokens of the generation config, without validation."""
    stated = model.generation_config.eos_token_id
    return [] if stated is None else list(stated) if isinstance(stated, list | tuple) else [stated]


def find_end_ids(
    tokenizer: PreTrainedTokenizerBase, of_model: Sequence[Any], vocabulary_size: int, *, name: str
) -> tuple[int, ...]:
    """Return the end tokens of tokenizer and generation config, as generation engines use them.

    If the tokenizer has no end token, it is set to the model's. Tokens outside the model's vocabulary are left out.
    """
    for stated in of_model:
        if not isinstance(stated, int) or stated < 0:
            raise CheckpointError(
                f"{name}: eos_token_id {stated!r} is not a token; set an integer in generation_config.json"
            )
    if tokenizer.eos_token_id is None and of_model:
        tokenizer.eos_token = str(tokenizer.convert_ids_to_tokens(of_model[0]))
    of_tokenizer = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    end_ids = tuple(dict.fromkeys(token for token in (*of_tokenizer, *of_model) if token < vocabulary_size))
    if not end_ids:
        raise CheckpointError(f"{name}: the model has no end token; set eos_token_id in generation_config.json")
    return end_ids
