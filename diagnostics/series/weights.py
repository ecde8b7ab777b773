"""Check and hash weight files. Reads safetensors without torch.

The hash covers name, dtype, shape and bytes of every tensor, in the order of names. It does not depend on metadata or
the number of shards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import START_BYTES, CheckpointError, detect_stand_in

MODEL_FILES = ("model.safetensors", "pytorch_model.bin")
INDEX = "model.safetensors.index.json"
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")

#: Largest header that the safetensors format allows. A larger number means that the file has another format.
_MAX_HEADER_BYTES = 100_000_000
_CHUNK_BYTES = 1 << 24
#: Dtypes of quantised weights, whose scale is in another tensor.
CODED = frozenset(
    {"I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2", "F4"}
)

#: Prefixes that DDP, torch.compile, FSDP, activation checkpointing and peft add to tensor names.
_WRAPPERS = r"(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
_INNER = rf"(?<=\.)(?:{_WRAPPERS})+"
#: Patterns of prefixes to remove. transformers removes one match of each, in this order.
MODEL_WRAPPERS = (rf"^(?:{_WRAPPERS}|module\.|base_model\.model\.)+", _INNER, f"{_INNER}(?:)", f"{_INNER}(?:)(?:)")
_ADAPTER_WRAPPERS = (rf"^(?:{_WRAPPERS}|module\.)+", *MODEL_WRAPPERS[1:])
_SHARD = re.compile(r"model-(\d+)-of-(\d+)\.safetensors")

_LAYER = re.compile(r"\.(?:layers|h)\.(\d+)\.")
#: First LoRA factors (A) whose number of columns is the hidden size.
_HIDDEN_INPUT = re.compile(r"\.(?:q_proj|k_proj|v_proj|gate_proj|up_proj)\.lora_A(?:\.\w+)?\.weight$")


class IncompleteCheckpointError(Exception):
    """A file of a checkpoint is missing, truncated or unreadable."""


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """Location of a tensor: the bytes ``start`` to ``end`` of ``file``.

    ``dtype`` is safetensors' name, such as BF16. ``wrapper`` is the prefix removed from its name, such as ``module.``.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    end: int
    wrapper: str = ""


def weight_files(folder: Path, *, adapter: bool = False) -> tuple[Path, ...]:
    """Return the weight files of ``folder``, with all shards; empty if there are none.

    Without an index, shards are recognized by their names. Raises ``IncompleteCheckpointError`` if an index cannot be
    read, or a shard is missing or outside the folder.
    """
    for name in ADAPTER_FILES if adapter else MODEL_FILES:
        index = folder / f"{name}.index.json"
        if index.is_file():
            names = sorted(set(_weight_map(index).values()))
            outside = [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts]
            if outside:
                raise IncompleteCheckpointError(f"{index.name} lists a shard outside of the checkpoint: {outside[0]}")
            shards = tuple(folder / name for name in names)
            missing = [shard.name for shard in shards if not shard.is_file()]
            if missing:
                raise IncompleteCheckpointError(
                    f"{', '.join(missing)} missing of the {len(shards)} shards in {index.name}"
                )
            return shards
        if (folder / name).is_file():
            return (folder / name,)
    return () if adapter else _shards_without_index(folder)


def _shards_without_index(folder: Path) -> tuple[Path, ...]:
    by_total: dict[int, dict[int, Path]] = {}
    for file in sorted(folder.glob("model-*-of-*.safetensors")):
        if match := _SHARD.fullmatch(file.name):
            by_total.setdefault(int(match[2]), {})[int(match[1])] = file
    if len(by_total) > 1:
        raise IncompleteCheckpointError(
            f"shards of several saves (of {' and of '.join(map(str, sorted(by_total)))} files) without {INDEX}; "
            "remove those of earlier saves"
        )
    for total, shards in by_total.items():
        missing = [f"model-{n:05}-of-{total:05}.safetensors" for n in range(1, total + 1) if n not in shards]
        if missing:
            listed = f"{missing[0]}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}"
            raise IncompleteCheckpointError(
                f"{listed} missing: {len(shards)} of {plural(total, 'shard')}, no {INDEX}; copy the missing shards, or "
                "save the model again"
            )
        return tuple(shards[number] for number in sorted(shards))
    pickled = sorted(folder.glob("pytorch_model-*-of-*.bin"))
    if pickled:
        raise IncompleteCheckpointError(
            f"{plural(len(pickled), 'shard')} of pytorch_model.bin without pytorch_model.bin.index.json; copy the "
            "index, or save the model again as safetensors"
        )
    return ()


def lacks_index(folder: Path, files: Sequence[Path]) -> bool:
    """Return whether ``files``, the weight files of ``folder``, are shards without an index."""
    return len(files) > 0 and bool(_SHARD.fullmatch(files[0].name)) and not (folder / INDEX).is_file()


def index_of(files: Sequence[Path]) -> str:
    """Return the index of safetensors shards, computed from their headers.

    Raises the errors of ``stored_tensors``.
    """
    names = {tensor.name: file.name for file in files for tensor in _read_header(file, plain=False)}
    size = sum(tensor.end - tensor.start for tensor in stored_tensors(files))
    return json.dumps({"metadata": {"total_size": size}, "weight_map": names})


def check_complete(files: Sequence[Path]) -> None:
    """Raise ``IncompleteCheckpointError`` if a file is truncated or has another format.

    Reads only headers and sizes. A ``.bin`` file does not state its length, so its truncation is found only when it is
    loaded.
    """
    for file in files:
        if file.suffix == ".safetensors":
            _read_header(file)
        elif file.stat().st_size == 0:
            raise IncompleteCheckpointError(f"{file.name} is empty")


def weights_hash(files: Sequence[Path], *, base_hash: str = "") -> str:
    """Return 16 hex digits that identify the weights in ``files``.

    The hash of an adapter includes the hash of its model. ``.bin`` files are pickles and are not opened: their hash
    covers the whole file. Raises ``IncompleteCheckpointError`` like ``check_complete``.
    """
    digest = blake2b(base_hash.encode(), digest_size=8)
    for tensor in sorted(stored_tensors(files), key=lambda tensor: tensor.name):
        digest.update(json.dumps([tensor.name, tensor.dtype, tensor.shape]).encode())
        for chunk in tensor_bytes(tensor):
            digest.update(chunk)
    for file in sorted(file for file in files if file.suffix != ".safetensors"):
        for chunk in _chunks(file, 0, file.stat().st_size):
            digest.update(chunk)
    return digest.hexdigest()


def stored_tensors(files: Sequence[Path]) -> list[StoredTensor]:
    """Return every tensor of the safetensors files among ``files``, with its name in the model.

    Prefixes that training adds (``module.``, ``_orig_mod.``, …) are removed from the names. Raises
    ``IncompleteCheckpointError`` like ``check_complete``, and if two tensors then have the same name.
    """
    tensors = [tensor for file in files if file.suffix == ".safetensors" for tensor in _read_header(file)]
    by_name: dict[str, StoredTensor] = {}
    for tensor in tensors:
        twin = by_name.setdefault(tensor.name, tensor)
        if twin is not tensor and twin.wrapper != tensor.wrapper:
            wrapper = twin.wrapper or tensor.wrapper
            raise IncompleteCheckpointError(
                f"{tensor.file.name} has {tensor.name} with and without the prefix {wrapper}; save the model again "
                "from the unwrapped model"
            )
    return tensors


def plain_name(name: str, *, adapter: bool = False) -> str:
    """Return the name of a tensor without the prefixes that training adds.

    >>> plain_name("module._orig_mod.model.layers.0._orig_mod.mlp.up_proj.weight")
    'model.layers.0.mlp.up_proj.weight'
    >>> plain_name("_orig_mod.base_model.model.lm_head.lora_A.weight", adapter=True)
    'base_model.model.lm_head.lora_A.weight'
    """
    for pattern in _ADAPTER_WRAPPERS if adapter else MODEL_WRAPPERS:
        name = re.sub(pattern, "", name, count=1)
    return name


def wrapper_of(files: Sequence[Path]) -> str:
    """Return the first prefix that was removed from a tensor name in ``files``; empty if there is none."""
    return next((tensor.wrapper for tensor in stored_tensors(files) if tensor.wrapper), "")


def refuse_unmerged(files: Sequence[Path]) -> None:
    """Raise ``IncompleteCheckpointError`` if a model contains an unmerged adapter."""
    factor = next(
        (tensor.name for tensor in stored_tensors(files) if ".base_layer." in tensor.name or ".lora_" in tensor.name),
        "",
    )
    if factor:
        raise IncompleteCheckpointError(
            f"contains an adapter that is not merged ({factor}); save merge_and_unload() of the model, or the adapter "
            "alone"
        )


def refuse_codes(files: Sequence[Path], config: Mapping[str, Any]) -> None:
    """Raise ``IncompleteCheckpointError`` for quantised weights without ``quantization_config``.

    Without that entry, transformers would not decode the integer codes and would use them as weights.
    """
    if config.get("quantization_config"):
        return
    codes = next(
        (tensor for tensor in stored_tensors(files) if tensor.dtype in CODED and tensor.name.endswith("weight")), None
    )
    if codes is not None:
        raise IncompleteCheckpointError(
            f"{codes.name} in {codes.file.name} is {codes.dtype}, but config.json has no quantization_config; "
            "write the weights as BF16, F16 or F32"
        )


def require_adapter_fit(files: Sequence[Path], model_path: Path, *, label: str) -> None:
    """Raise ``CheckpointError`` if the adapter's factors do not fit the model in ``model_path``.

    The number of layers and the hidden size are compared. peft silently drops factors of layers that the model does not
    have.
    """
    fault = _find_misfit(stored_tensors(files), _load_text_config(model_path))
    if fault is not None:
        raise CheckpointError(
            f"{label}: its adapter {fault} of {model_path}, so it was trained on another model; set that model as "
            f"base_model_name_or_path in {files[0].parent / 'adapter_config.json'}, or pass --base"
        )


def _find_misfit(factors: Sequence[StoredTensor], config: dict[str, Any]) -> str | None:
    layers, width = (
        next((config[name] for name in names if isinstance(config.get(name), int)), None)
        for names in (("num_hidden_layers", "n_layer"), ("hidden_size", "n_embd"))
    )
    deepest = max((int(match[1]) for tensor in factors if (match := _LAYER.search(tensor.name))), default=-1)
    if layers is not None and deepest >= layers:
        return f"changes layer {deepest}, beyond the {layers} layers"
    widths = {tensor.shape[-1] for tensor in factors if _HIDDEN_INPUT.search(tensor.name)}
    if width is not None and len(widths) == 1 and widths != {width}:
        return f"is for hidden size {widths.pop():,}, not the {width:,}"
    return None


def _load_text_config(model_path: Path) -> dict[str, Any]:
    """Return the configuration of the model's language part; empty if it cannot be read."""
    try:
        config = json.loads((model_path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}  # the error is reported when the model is loaded
    inner = config.get("text_config") if isinstance(config, dict) else None
    return inner if isinstance(inner, dict) else config if isinstance(config, dict) else {}


def tensor_bytes(tensor: StoredTensor, *, at_a_time: int = _CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the bytes of ``tensor`` in little-endian, row-major order."""
    return _chunks(tensor.file, tensor.start, tensor.end, at_a_time)


def _weight_map(index: Path) -> dict[str, str]:
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise IncompleteCheckpointError(f"{index.name} has no list of shards") from None
    if not isinstance(weight_map, dict) or not weight_map:
        raise IncompleteCheckpointError(f"{index.name} lists no shard")
    if not all(isinstance(shard, str) for shard in weight_map.values()):
        raise IncompleteCheckpointError(f"{index.name} lists a shard that is not a file name")
    return weight_map


def _read_header(file: Path, *, plain: bool = True) -> list[StoredTensor]:
    """Return the tensors of a safetensors file.

    Format: 8 bytes of header length (little endian), a JSON header, and the bytes of the tensors.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
        if size < 8 or header_bytes > _MAX_HEADER_BYTES:
            stream.seek(0)
            why = detect_stand_in(stream.read(START_BYTES))
            raise IncompleteCheckpointError(f"{file.name} {why or f'is not a safetensors file ({size:,} bytes)'}")
        if size < 8 + header_bytes:
            raise IncompleteCheckpointError(f"{file.name} is truncated inside its header ({size:,} bytes)")
        raw = stream.read(header_bytes)
    first, is_adapter = 8 + header_bytes, file.name.startswith("adapter")
    try:
        header: dict[str, Any] = json.loads(raw)
        tensors = [
            StoredTensor(
                name=short if plain else name,
                dtype=entry["dtype"],
                shape=tuple(entry["shape"]),
                file=file,
                start=first + start,
                end=first + end,
                wrapper=_removed(name, short, _ADAPTER_WRAPPERS if is_adapter else MODEL_WRAPPERS),
            )
            for name, entry in header.items()
            if name != "__metadata__"
            for short in [plain_name(name, adapter=is_adapter)]
            for start, end in [_offsets(entry)]
        ]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise IncompleteCheckpointError(f"{file.name} has a broken header") from None
    expected = max((tensor.end for tensor in tensors), default=first)
    if size != expected:
        problem = "is truncated" if size < expected else "is too long"
        raise IncompleteCheckpointError(f"{file.name} {problem} ({size:,} of {expected:,} bytes)")
    return tensors


def _removed(name: str, short: str, patterns: Sequence[str]) -> str:
    """Return the first component of ``name`` that is missing in ``short``; empty if the names are equal."""
    matches = [] if name == short else [match[0] for pattern in patterns if (match := re.search(pattern, name))]
    return matches[0] if matches else ""


def _offsets(entry: dict[str, Any]) -> tuple[int, int]:
    start, end = entry["data_offsets"]
    if type(start) is not int or type(end) is not int or not 0 <= start <= end:
        raise ValueError("offsets must be increasing byte counts")
    return start, end


def _chunks(file: Path, start: int, end: int, at_a_time: int = _CHUNK_BYTES) -> Iterator[bytes]:
    with file.open("rb") as stream:
        stream.seek(start)
        for first in range(start, end, at_a_time):
            yield stream.read(min(at_a_time, end - first))
