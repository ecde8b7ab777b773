"""Writes safetensors files tensor by tensor, so that a file may be larger than the memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.series.numbers import FLOAT_BYTES
from oversharp.diagnostics.series.weights import StoredTensor, tensor_bytes


@dataclass(frozen=True, kw_only=True)
class PlannedTensor:
    """A tensor that is to be written; ``chunks`` gives its bytes in order, ``n_bytes`` of them."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int
    chunks: Callable[[], Iterator[bytes]]


#: The tensors of every weight file, by its name.
PlannedFiles = Mapping[str, Sequence[PlannedTensor]]


def as_it_lies(tensor: StoredTensor) -> PlannedTensor:
    """A tensor that is copied."""
    return PlannedTensor(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=tensor.shape,
        n_bytes=tensor.end - tensor.start,
        chunks=lambda: tensor_bytes(tensor),
    )


def write_files(folder: Path, files: PlannedFiles, advance: Callable[[int], None]) -> None:
    """Write every file into ``folder``, and the index of a model in several. ``advance`` is called after each tensor.

    Raises ``CheckpointError`` if a source gives fewer bytes than its header says: someone is writing it.
    """
    for name, tensors in files.items():
        _write_file(folder / name, tensors, advance)
    if len(files) > 1 or "model.safetensors" not in files:
        _write_index(folder, files)


def _write_file(file: Path, tensors: Sequence[PlannedTensor], advance: Callable[[int], None]) -> None:
    # wide numbers first, as the library writes: each then starts at a multiple of its width
    ordered = sorted(tensors, key=lambda one: (-FLOAT_BYTES.get(one.dtype, 8), one.name))
    with file.open("wb") as stream:
        stream.write(_header(ordered))
        for tensor in ordered:
            n_written = sum(stream.write(chunk) for chunk in tensor.chunks())
            if n_written != tensor.n_bytes:
                raise CheckpointError(
                    f"{tensor.name}: its source changed while it was read; stop what writes there, and run again"
                )
            advance(1)


def _header(tensors: Sequence[PlannedTensor]) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for one in tensors:
        end = start + one.n_bytes
        header[one.name] = {"dtype": one.dtype, "shape": one.shape, "data_offsets": [start, end]}
        start = end
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(8, "little") + raw


def _write_index(folder: Path, files: PlannedFiles) -> None:
    if any(name.startswith("adapter_model") for name in files):
        return
    places = {one.name: name for name, tensors in files.items() for one in tensors}
    total = sum(one.n_bytes for tensors in files.values() for one in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
