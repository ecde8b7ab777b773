"""Weight files on disk: are they complete, and which weights are they? Reads safetensors without torch.

The hash covers tensors, not files: name, dtype, shape and bytes of every tensor in name order. So the same weights
have the same hash whatever the number of shards and whatever metadata the writer added.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

MODEL_FILES = ("model.safetensors", "pytorch_model.bin")
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")

#: The safetensors format bounds its own header at 100 MB; a larger number means that this is another format.
_MAX_HEADER_BYTES = 100_000_000
_CHUNK_BYTES = 1 << 24
#: Types of tensors whose entries stand for other numbers, by a scale that lies elsewhere.
CODED = frozenset(
    {"I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2", "F4"}
)


class IncompleteCheckpointError(Exception):
    """Files of a checkpoint that are missing, cut short or unreadable; the message names the file and its fault."""


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """Where one tensor lies: bytes ``start`` to ``end`` of ``file``. The dtype is safetensors' name, such as BF16."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    end: int


def weight_files(folder: Path, *, adapter: bool = False) -> tuple[Path, ...]:
    """The files that hold the weights of ``folder``, every shard of an index included; empty if there are none.

    Raises ``IncompleteCheckpointError`` if an index cannot be read or names a shard that is not there, or elsewhere.
    """
    for name in ADAPTER_FILES if adapter else MODEL_FILES:
        index = folder / f"{name}.index.json"
        if index.is_file():
            names = sorted(set(_weight_map(index).values()))
            outside = [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts]
            if outside:
                raise IncompleteCheckpointError(f"{index.name} names a shard outside of the checkpoint: {outside[0]}")
            shards = tuple(folder / name for name in names)
            missing = [shard.name for shard in shards if not shard.is_file()]
            if missing:
                raise IncompleteCheckpointError(
                    f"{', '.join(missing)} missing, of {len(shards)} shards in {index.name}"
                )
            return shards
        if (folder / name).is_file():
            return (folder / name,)
    return ()


def check_complete(files: Sequence[Path]) -> None:
    """Raise ``IncompleteCheckpointError`` if one of ``files`` is cut short or not what its name says.

    Only headers and sizes are read. A ``.bin`` file says nothing of its length; it is found out when it is loaded.
    """
    for file in files:
        if file.suffix == ".safetensors":
            _read_header(file)
        elif file.stat().st_size == 0:
            raise IncompleteCheckpointError(f"{file.name} is empty")


def weights_hash(files: Sequence[Path], *, base_hash: str = "") -> str:
    """16 hex digits that identify the weights in ``files``.

    The hash of an adapter takes in the hash of the model that it belongs to. ``.bin`` files are pickles, which are
    not opened here: their hash covers the file as it lies. Raises ``IncompleteCheckpointError`` as ``check_complete``.
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
    """Every tensor of the safetensors files among ``files``. Raises ``IncompleteCheckpointError`` as above."""
    return [tensor for file in files if file.suffix == ".safetensors" for tensor in _read_header(file)]


def refuse_codes(files: Sequence[Path], config: Mapping[str, Any]) -> None:
    """Raise ``IncompleteCheckpointError`` for weights that are codes of a quantisation of which ``config`` is silent.

    They would be taken for numbers. With ``quantization_config`` transformers knows what they stand for.
    """
    if config.get("quantization_config"):
        return
    codes = next((one for one in stored_tensors(files) if one.dtype in CODED and one.name.endswith("weight")), None)
    if codes is not None:
        raise IncompleteCheckpointError(
            f"{codes.name} in {codes.file.name} is {codes.dtype}, and config.json has no quantization_config; "
            "write the weights as BF16, F16 or F32"
        )


def tensor_bytes(tensor: StoredTensor, *, at_a_time: int = _CHUNK_BYTES) -> Iterator[bytes]:
    """The bytes of ``tensor``, little endian and row by row."""
    return _chunks(tensor.file, tensor.start, tensor.end, at_a_time)


def _weight_map(index: Path) -> dict[str, str]:
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise IncompleteCheckpointError(f"{index.name} is not a list of shards") from None
    if not isinstance(weight_map, dict) or not weight_map:
        raise IncompleteCheckpointError(f"{index.name} names no shard")
    if not all(isinstance(shard, str) for shard in weight_map.values()):
        raise IncompleteCheckpointError(f"{index.name} names a shard that is no file name")
    return weight_map


def _read_header(file: Path) -> list[StoredTensor]:
    """Layout of a safetensors file: 8 bytes of header length, little endian; a JSON header; the tensors' bytes."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
        if size < 8 or header_bytes > _MAX_HEADER_BYTES:
            raise IncompleteCheckpointError(f"{file.name} is not a safetensors file ({size:,} bytes)")
        if size < 8 + header_bytes:
            raise IncompleteCheckpointError(f"{file.name} is cut short inside its header ({size:,} bytes)")
        raw = stream.read(header_bytes)
    first = 8 + header_bytes
    try:
        header: dict[str, Any] = json.loads(raw)
        tensors = [
            StoredTensor(
                name=name,
                dtype=entry["dtype"],
                shape=tuple(entry["shape"]),
                file=file,
                start=first + start,
                end=first + end,
            )
            for name, entry in header.items()
            if name != "__metadata__"
            for start, end in [_offsets(entry)]
        ]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise IncompleteCheckpointError(f"{file.name} has a broken header") from None
    expected = max((tensor.end for tensor in tensors), default=first)
    if size != expected:
        problem = "is cut short" if size < expected else "is too long"
        raise IncompleteCheckpointError(f"{file.name} {problem} ({size:,} of {expected:,} bytes)")
    return tensors


def _offsets(entry: dict[str, Any]) -> tuple[int, int]:
    start, end = entry["data_offsets"]
    if type(start) is not int or type(end) is not int or not 0 <= start <= end:
        raise ValueError("offsets count bytes")
    return start, end


def _chunks(file: Path, start: int, end: int, at_a_time: int = _CHUNK_BYTES) -> Iterator[bytes]:
    with file.open("rb") as stream:
        stream.seek(start)
        for first in range(start, end, at_a_time):
            yield stream.read(min(at_a_time, end - first))
