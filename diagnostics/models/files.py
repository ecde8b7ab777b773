"""Load weights, adapters and tokenizers, and check them.

The checks find faults that transformers and peft ignore. In all functions, ``name`` is the model's name in error
messages.
"""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import torch

from oversharp.diagnostics.models.placement import Room, numbers_of
from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.series.fingerprints import refuse_untied_head
from oversharp.diagnostics.series.folders import locate_model, missing_model_hint, near_directories
from oversharp.diagnostics.series.tokenizers import tokenizer_file
from oversharp.diagnostics.series.weights import (
    INDEX,
    MODEL_WRAPPERS,
    IncompleteCheckpointError,
    StoredTensor,
    check_complete,
    index_of,
    lacks_index,
    plain_name,
    stored_tensors,
    weight_files,
    wrapper_of,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def is_local(path: str | Path) -> bool:
    """Return whether ``path`` is a directory path, and not a hub name (OWNER/NAME or NAME).

    The directory need not exist. A string that could be a hub name counts as a path if its parent is a local directory
    or if it resembles the name of a local directory. So a mistyped path is not looked up on the hub. A model in the
    hub's cache can still be loaded by its name.
    """
    if isinstance(path, Path) or Path(path).exists():
        return True
    if path.startswith((".", "/", "~")) or path.count("/") > 1:
        return True
    owner, _, last = path.rpartition("/")
    near = near_directories(Path(path))
    is_here = Path(owner).is_dir() or any(Path(name).name == last for name in near) if owner else bool(near)
    return is_here and locate_model(path) is None


def require_config(path: Path) -> None:
    """Raise ``CheckpointError`` unless ``path`` contains a config.json."""
    if not (path / "config.json").is_file():
        raise CheckpointError(f"{path}: {missing_model_hint(path)}")


def require_files(path: Path, tokenizer_path: Path, *, name: str) -> None:
    """Raise ``CheckpointError`` unless the model's and the tokenizer's files exist."""
    require_config(path)
    if tokenizer_file((tokenizer_path,)) is None:
        raise CheckpointError(f"{name}: tokenizer.json missing in {tokenizer_path}; copy the file from the base model")


def require_weights(path: Path) -> None:
    """Raise ``CheckpointError`` unless the weight files in ``path`` are complete."""
    try:
        files = weight_files(path)
        if not files:
            raise CheckpointError(f"{path}: contains a configuration but no weights; copy model.safetensors there")
        check_complete(files)
    except (IncompleteCheckpointError, OSError) as error:
        raise CheckpointError(f"{path}: {error}; copy or save the model again") from error


def needs_code(path: str | Path) -> bool:
    """Return whether the model in ``path`` needs modelling code from its folder.

    It does if transformers has no class for it. If transformers has a class, it is used even if the folder contains
    code. So all audits of the same files use the same model.
    """
    from transformers import PreTrainedConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    config, _ = PreTrainedConfig.get_config_dict(path, local_files_only=True)
    return config.get("model_type") not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def load_outline(path: str | Path) -> PreTrainedModel:
    """Return the model in ``path`` on the meta device, without weights.

    Errors of transformers are passed on.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    with torch.device("meta"):
        model = cast("PreTrainedModel", AutoModelForCausalLM.from_config(config, trust_remote_code=False))
    with suppress(OSError):  # if the file is missing, transformers uses config.json
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
    """Return the model in ``path``, on the CPU or distributed over ``room``.

    Name prefixes that trainers add to tensors are removed, and shards need no index file. Raises ``CheckpointError`` if
    a tensor is missing, if its shape differs from config.json, or if the files contain a separate head that the model
    would ignore. Other errors of transformers are passed on.
    """
    from transformers import AutoModelForCausalLM

    with _loadable(path) as (folder, files):
        loaded: Any = AutoModelForCausalLM.from_pretrained(  # returns a pair, unlike its annotation
            folder,
            dtype=dtype,
            local_files_only=local_files_only,
            trust_remote_code=trust_remote_code,  # None would ask the user on the terminal
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # raised below, with the tensor's name
            **_renaming(files),
            **({} if room is None else {"device_map": "auto", "max_memory": dict(room)}),
        )
    model, report = loaded
    # transformers initialises mismatched and missing tensors with random numbers, without an error
    if mismatched := sorted(report["mismatched_keys"]):
        tensor, stored, expected = mismatched[0]
        others = f" ({len(mismatched)} tensors differ)" if len(mismatched) > 1 else ""
        raise CheckpointError(
            f"{name}: {tensor} is {_shape_text(stored)} in {path}, but {_shape_text(expected)} according to its "
            f"config.json{others}; copy the config.json that belongs to these weights"
        )
    if missing := sorted(report["missing_keys"]):
        raise CheckpointError(
            f"{name}: {len(missing)} tensors are missing in {path}, such as {missing[0]}; save the checkpoint again"
        )
    try:
        refuse_untied_head(files, tied=bool(model.config.get_text_config().tie_word_embeddings))
    except IncompleteCheckpointError as fault:
        raise CheckpointError(f"{name}: {fault}") from None
    return cast("PreTrainedModel", model)


@contextmanager
def _loadable(path: str | Path) -> Iterator[tuple[str | Path, tuple[Path, ...]]]:
    """Yield a loadable folder and its weight files.

    The folder is ``path``. If that lacks an index file, it is a temporary folder of symlinks and a generated index.
    """
    folder = Path(path)
    if not folder.is_dir():
        yield path, ()  # a hub name
        return
    files = weight_files(folder)
    with _pickle_errors(files):
        if not lacks_index(folder, files):
            yield path, files
            return
        with TemporaryDirectory(prefix="oversharp-") as links:
            for file in folder.absolute().iterdir():
                (Path(links) / file.name).symlink_to(file)
            (Path(links) / INDEX).write_text(index_of(files), encoding="utf-8")
            yield links, files


def _renaming(files: Sequence[Path]) -> dict[str, Any]:
    """Return the ``from_pretrained`` argument that removes trainers' prefixes of tensor names."""
    is_pickle = any(file.suffix != ".safetensors" for file in files)
    return {"key_mapping": dict.fromkeys(MODEL_WRAPPERS, "")} if is_pickle or wrapper_of(files) else {}


@contextmanager
def _pickle_errors(files: Sequence[Path]) -> Iterator[None]:
    """Replace torch's error for an unsafe pickle, which recommends running its code."""
    try:
        yield
    except (pickle.UnpicklingError, ValueError, RuntimeError) as error:
        pickled = next((file for file in files if file.suffix != ".safetensors"), None)
        if pickled is None or not (isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error)):
            raise
        target = pickled.with_suffix(".safetensors").name.replace("pytorch_model", "model")
        raise CheckpointError(
            f"{pickled}: the pickle is damaged, or contains more than tensors and could run code; it was not loaded; "
            f"convert it to safetensors where it was created: model.save_pretrained(DIR) writes {target}"
        ) from error


def _shape_text(shape: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in shape) or "a single number"


def apply_adapter(model: Any, adapter_path: Path, *, name: str, room: Room | None = None) -> Any:
    """Return ``model`` with the adapter applied in the model's precision, as in vLLM.

    Adapters that multiply weights (DoRA, IA³) stay in float32, because half precision would round away their small
    changes. If ``room`` is given, the adapted model is distributed again. If the vocabulary was resized for training,
    the model's embeddings are resized too. Raises ``CheckpointError`` if the adapter belongs to another model.
    """
    from peft import PeftModel

    files = weight_files(adapter_path, adapter=True)
    _resize_vocabulary(model, stored_tensors(files), name=name)
    with warnings.catch_warnings(record=True) as caught, _pickle_errors(files), _plain_adapter(files) as folder:
        warnings.simplefilter("always")
        config = json.loads((adapter_path / "adapter_config.json").read_text(encoding="utf-8"))
        is_plain_lora = config.get("peft_type", "LORA") == "LORA" and not config.get("use_dora")
        # float8 is too coarse for LoRA factors
        can_cast = all(parameter.element_size() > 1 for parameter in model.parameters())
        placed: dict[str, Any] = {} if room is None else {"max_memory": dict(room)}
        try:
            adapted = PeftModel.from_pretrained(
                model,
                str(folder or adapter_path),
                local_files_only=True,
                autocast_adapter_dtype=not (is_plain_lora and can_cast),
                **placed,
            )
        except RuntimeError as error:
            if differing := _SIZES.search(str(error)):
                tensor, stored, expected = differing.groups()
                raise CheckpointError(
                    f"{name}: {tensor} is {_sizes_text(stored)} in the adapter, but {_sizes_text(expected)} in its "
                    "base model; the adapter belongs to another model"
                ) from error
            raise
    # for missing adapter keys, peft only warns and keeps the random initialisation
    missing = [str(warning.message) for warning in caught if "missing adapter keys" in str(warning.message)]
    if missing:
        raise CheckpointError(f"{name}: {missing[0][:160]}; the adapter belongs to another model")
    return adapted


#: torch's error message for a tensor whose shape differs between file and model.
_SIZES = re.compile(
    r"size mismatch for (\S+): copying a param with shape \S*?\(?\[?([\d, ]+)\D+?.*?shape in current "
    r"model is \S*?\(?\[?([\d, ]+)"
)


def _sizes_text(listed: str) -> str:
    return _shape_text([int(size) for size in listed.split(",") if size.strip()])


def _resize_vocabulary(model: Any, tensors: Sequence[StoredTensor], *, name: str) -> None:
    """Resize the embeddings of ``model`` to the vocabulary of an adapter.

    The new size is that of the complete embeddings in the adapter.

    Raises ``CheckpointError`` if the adapter has another vocabulary but lacks the new rows.
    """
    model_size = int(model.get_input_embeddings().weight.shape[0])
    complete = {match[1]: tensor.shape[0] for tensor in tensors if (match := _EMBEDDED.search(tensor.name))}
    sizes = {*complete.values(), *(tensor.shape[-1] for tensor in tensors if "lora_embedding_A" in tensor.name)}
    if not sizes - {model_size}:
        return
    adapter_size = max(sizes - {model_size})
    tied = bool(model.config.get_text_config().tie_word_embeddings)
    if sizes != {adapter_size} or not complete or not (tied or len(complete) > 1):
        raise CheckpointError(
            f"{name}: the adapter has a vocabulary of {adapter_size:,} tokens, its base model {model_size:,}, and the "
            "adapter lacks the new rows of the embeddings or the head; save the adapter with "
            "save_embedding_layers=True, or resize and save the base model"
        )
    model.resize_token_embeddings(adapter_size, mean_resizing=False)


#: Tensor name of complete embeddings or of a complete head in an adapter, with or without peft's infix.
_EMBEDDED = re.compile(r"(embed_tokens|wte|lm_head)(?:\.base_layer|\.modules_to_save(?:\.\w+)?)?\.weight$")


@contextmanager
def _plain_adapter(files: Sequence[Path]) -> Iterator[Path | None]:
    """Yield a copy of an adapter without trainers' prefixes in tensor names.

    Yields None if there is no prefix.
    """
    if not wrapper_of(files):
        yield None
        return
    from safetensors.torch import load_file, save_file

    with TemporaryDirectory(prefix="oversharp-") as folder:
        for file in files[0].parent.absolute().iterdir():
            if file.name != files[0].name:
                (Path(folder) / file.name).symlink_to(file)
        tensors = {plain_name(tensor, adapter=True): numbers for tensor, numbers in load_file(files[0]).items()}
        save_file(tensors, Path(folder) / files[0].name, metadata={"format": "pt"})
        yield Path(folder)


def load_tokenizer(path: str | Path, *, local_files_only: bool, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """Return the tokenizer in ``path``. Errors of transformers are passed on."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, local_files_only=local_files_only, trust_remote_code=trust_remote_code)


def refuse_broken_numbers(model: PreTrainedModel, *, name: str) -> None:
    """Raise ``CheckpointError`` for a tensor with NaN or infinite numbers."""
    for tensor_name, numbers in numbers_of(model):
        if not bool(torch.isfinite(numbers).all()):
            raise CheckpointError(
                f"{name}: {tensor_name} contains NaN or infinite numbers; training diverged or the file is damaged: "
                "use another checkpoint"
            )
