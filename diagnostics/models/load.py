"""Loads causal language models with their tokenizers, from this machine or the hub."""

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
    is_local,
    load_outline,
    load_tokenizer,
    load_weights,
    needs_code,
    refuse_broken_numbers,
    require_config,
    require_files,
    require_weights,
    with_adapter,
)
from oversharp.diagnostics.models.placement import Room, room_to_spread
from oversharp.diagnostics.records.errors import CheckpointError, OversharpError, first_line
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.series.folders import locate_model
from oversharp.diagnostics.series.tokenizers import tokenizer_file, tokenizer_places
from oversharp.diagnostics.series.weights import stored_tensors, weight_files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


Dtype = Literal["float32", "bfloat16", "float16"]

#: How peft lets adapters begin without taking anything out of the weights under them.
_LEAVING_STARTS = (True, False, "gaussian")


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A causal language model in evaluation mode with its tokenizer, ready on ``device``.

    ``end_ids`` are the tokens that end a response, the tokenizer's own first. ``pad_id`` fills masked positions.
    ``context_tokens`` is the longest sequence the model was made for, None if it states no limit.
    ``vocabulary_size`` counts the rows of the embedding, which may exceed the tokenizer's vocabulary. ``stated_ends``
    are the end tokens that the model names itself, its tokenizer's aside. ``room`` is None, or what the model is spread
    over, whose first GPU then takes tokens and gives logits: it can be run forward alone, and stays as it is.
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
    """No bars and notes of transformers, accelerate and huggingface_hub inside the block: ours say what happens."""
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
    """Load a checkpoint for the audit, an adapter with the model under it, from this machine's files alone.

    The checkpoint's own sampling defaults (temperature, repetition penalty, …) are dropped: the settings of the audit
    alone decide. A mixture's router logits are not asked for: its loss of balance, which nobody wants here, fails on
    a pass that goes on from another. A model that one GPU has no room for is spread over what there is, but for an
    engine's share of every GPU. Raises ``CheckpointError`` as ``load_path`` does.
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
        spread_beside=engine_share,
    )
    model: Any = loaded.model
    inner = model.get_base_model() if checkpoint.kind == "lora" else model
    inner.generation_config = GenerationConfig()
    for config in (inner.config, inner.config.get_text_config()):
        if getattr(config, "output_router_logits", False):
            config.output_router_logits = False
    if (head := inner.get_output_embeddings()) is not None:
        head.register_forward_pre_hook(_in_one_piece)
    return loaded


def _in_one_piece(_head: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The hidden states of some positions as a block of memory of their own.

    torch multiplies a slice with the weights once for each row where these want no gradient, and copies the weights for
    every row: 2.1 GiB for 38 responses under an adapter on SmolLM2-135M.
    """
    return (inputs[0].contiguous(), *inputs[1:])


def load_on_held_weights(loaded: LoadedModel, held: Checkpoint, checkpoint: Checkpoint) -> LoadedModel | None:
    """``checkpoint``, of which ``held`` shares all weights but the adapter's: these are not read again.

    ``loaded`` is what was loaded of ``held``, and of no use any more. None, and it is as before, where weights differ:
    of full models, of adapters on others, and behind an adapter that wrote into the weights under it. Of a series of
    adapters the model under them is so read once, not twice for each checkpoint. Raises ``CheckpointError`` as
    ``load_path`` does.
    """
    under = (checkpoint.base_path or checkpoint.path).resolve()
    same = (held.base_path or held.path).resolve() == under and "lora" in (held.kind, checkpoint.kind)
    if loaded.room is not None:  # accelerate's hooks are on its layers
        return None
    if not same or not _leaves_weights(held):
        return None
    model: Any = loaded.model
    base = model.unload() if held.kind == "lora" else model
    with _load_errors(f"{checkpoint.label}: {checkpoint.path}", local=True):
        tokenizer_source = _tokenizer_folder(checkpoint)
        tokenizer = load_tokenizer(tokenizer_source, local_files_only=True, trust_remote_code=False)
        if checkpoint.kind == "lora":
            require_files(under, tokenizer_source, name=checkpoint.label)
            base = with_adapter(base, checkpoint.path, name=checkpoint.label)
        else:
            for one in base.parameters():  # an adapter had them all stand still
                one.requires_grad_(one.is_floating_point())
        base.to(loaded.device)
        base.eval()
    name = checkpoint.label
    refuse_broken_numbers(base, name=name)
    return _loaded(
        base, tokenizer, loaded.stated_ends, device=loaded.device, name=name, tokenizer_source=tokenizer_source
    )


def _leaves_weights(held: Checkpoint) -> bool:
    """Whether the weights under the checkpoint are as they were once its adapter is off.

    Biases and embeddings that were trained stay in them, and what some adapters take out of the weights as they begin
    (PiSSA, OLoRA, CorDA, LoftQ): only what is known to leave them alone does.
    """
    if held.kind != "lora":
        return True
    config = json.loads((held.path / "adapter_config.json").read_text(encoding="utf-8"))
    tensors = stored_tensors(weight_files(held.path, adapter=True))
    beside = [one.name for one in tensors if ".lora_" not in one.name]
    plain = (
        config.get("peft_type", "LORA") == "LORA"
        and config.get("bias", "none") == "none"
        and config.get("init_lora_weights", True) in _LEAVING_STARTS
        and not config.get("layer_replication")
    )
    return plain and bool(tensors) and not beside


def load_own_tokenizer(checkpoint: Checkpoint, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint, without its model. Raises ``CheckpointError``."""
    folder = _tokenizer_folder(checkpoint)
    with _load_errors(f"{checkpoint.label}: the tokenizer in {folder}", local=True):
        return load_tokenizer(folder, local_files_only=True, trust_remote_code=trust_remote_code)


def _tokenizer_folder(checkpoint: Checkpoint) -> Path:
    own = tokenizer_file(tokenizer_places(checkpoint))
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
    spread_beside: float | None = None,
) -> LoadedModel:
    """Load the model of a directory or hub name with its tokenizer, an adapter on top where one is given.

    The generation config stays as it is, so ``save_pretrained`` writes it again. ``label`` is what errors call the
    model, by default ``path``; the tokenizer is looked for in ``path`` unless it lies elsewhere. Raises
    ``CheckpointError`` in one line for whatever keeps the model from being used: a file that does not load, a tensor
    that is missing or not finite, a tokenizer of another model, no end token. ``trust_remote_code``: code that lies
    beside the weights runs if transformers has no such model; without it, a model that needs such code is refused.
    ``spread_beside``: a model in a directory that one GPU has no room for is spread over what there is beside such a
    share of each; None: it must fit.
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
        if local and spread_beside is not None:
            room = room_to_spread(path, getattr(torch, dtype), device, engine_share=spread_beside, name=name)
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
            model = with_adapter(model, adapter_path, name=name, room=room)
        tokenizer = load_tokenizer(
            tokenizer_source, local_files_only=local_files_only, trust_remote_code=trust_remote_code
        )
        if room is None:
            model.to(device)  # type: ignore[arg-type]  # the stub binds a wrapped method to its class
        model.eval()
    refuse_broken_numbers(model, name=name)
    return _loaded(model, tokenizer, of_model, device=device, name=name, tokenizer_source=tokenizer_source, room=room)


def outline_path(path: str | Path) -> LoadedModel:
    """What ``load_path`` would load, without its numbers: tokenizer, context, end tokens, and an empty model.

    The model lies on torch's meta device and computes nothing. Of a hub name the small files are fetched where they
    are not in the cache. Raises ``CheckpointError`` as ``load_path`` does, for all but the content of the weights.
    """
    from huggingface_hub import is_offline_mode

    name, local = str(path), is_local(path)
    if local:
        path = Path(path).expanduser()
        require_files(path, path, name=name)
    with _load_errors(name, local=local):
        model = load_outline(path)
        tokenizer = load_tokenizer(path, local_files_only=False, trust_remote_code=False)
    if local or is_offline_mode():  # else what is missing will be fetched
        require_weights(model_folder(path))
    device = torch.device("meta")
    return _loaded(model, tokenizer, _stated_end_ids(model), device=device, name=name, tokenizer_source=path)


def empty_model(path: str | Path) -> PreTrainedModel:
    """The model of a config.json alone, on torch's meta device. Raises ``CheckpointError`` as ``load_path`` does."""
    local = is_local(path)
    if local:
        path = Path(path).expanduser()
        require_config(path)
    with _load_errors(str(path), local=local):
        return load_outline(path)


def model_folder(path: str | Path) -> Path:
    """The directory of a model that ``load_path`` or ``outline_path`` has opened; a hub name lies in the hub's cache.

    Raises ``CheckpointError`` where its files are not on this machine.
    """
    folder = Path(path).expanduser() if is_local(path) else locate_model(str(path))
    if folder is None:
        raise CheckpointError(f"{path}: not in the hub's cache on this machine; give the directory that it lies in")
    return folder


@contextmanager
def _load_errors(what: str, *, local: bool) -> Iterator[None]:
    """Quiet loading whose failures are a ``CheckpointError`` in one line."""
    try:
        with quiet_transformers():
            yield
    except OversharpError:
        raise
    except torch.OutOfMemoryError as error:
        raise CheckpointError(
            f"{what} does not fit the GPU ({first_line(error)}); free it of other programs, pass --dtype bfloat16, or "
            "take a larger one"
        ) from error
    except Exception as error:  # broken files make these libraries raise anything, plain Exception too
        if "trust_remote_code" in str(error):
            raise CheckpointError(
                f"{what} needs modelling code of its own, which only --trust-remote-code of `oversharp audit` and "
                "`oversharp confirm` runs, with your rights on this machine: if you trust its author"
            ) from error
        mend = "check its files, or use another checkpoint" if local else "check the name, or give a directory"
        raise CheckpointError(f"{what} cannot be loaded ({first_line(error)}); {mend}") from error


def _loaded(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    of_model: Sequence[Any],
    *,
    device: torch.device,
    name: str,
    tokenizer_source: str | Path,
    room: Room | None = None,
) -> LoadedModel:
    """The record of both. Raises ``CheckpointError`` for a tokenizer of another model, or no end token."""
    embedding: Any = model.get_input_embeddings()
    vocabulary_size = int(embedding.weight.shape[0])
    if tokenizer.vocab_size > vocabulary_size:
        raise CheckpointError(
            f"{name}: the tokenizer has {tokenizer.vocab_size:,} tokens, the model {vocabulary_size:,}; "
            f"{tokenizer_source} carries the tokenizer of another model: copy the right one there"
        )
    end_ids = _end_ids(tokenizer, of_model, vocabulary_size, name=name)
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
    """The end tokens of the generation config, which transformers fills from config.json where it has none.

    Whatever stands there: transformers does not look at it.
    """
    stated = model.generation_config.eos_token_id
    return [] if stated is None else list(stated) if isinstance(stated, list | tuple) else [stated]


def _end_ids(
    tokenizer: PreTrainedTokenizerBase, of_model: Sequence[Any], vocabulary_size: int, *, name: str
) -> tuple[int, ...]:
    """Every token that ends a response, as generation engines take them: the tokenizer's and the model's.

    A tokenizer without an end token gets the model's. A token that the model lacks is never drawn and left out.
    """
    for stated in of_model:
        if not isinstance(stated, int) or stated < 0:
            raise CheckpointError(
                f"{name}: eos_token_id {stated!r} is no token; give generation_config.json a whole number"
            )
    if tokenizer.eos_token_id is None and of_model:
        tokenizer.eos_token = str(tokenizer.convert_ids_to_tokens(of_model[0]))
    of_tokenizer = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    end_ids = tuple(dict.fromkeys(token for token in (*of_tokenizer, *of_model) if token < vocabulary_size))
    if not end_ids:
        raise CheckpointError(f"{name}: no end token known; set eos_token_id in generation_config.json")
    return end_ids
