"""Write safetensors files tensor by tensor, so that a file may be larger than memory."""

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
    """A tensor to write; ``chunks`` yields its ``n_bytes`` bytes in order."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int
    chunks: Callable[[], Iterator[bytes]]


#: File name → tensors.
PlannedFiles = Mapping[str, Sequence[PlannedTensor]]


def plan_copy(tensor: StoredTensor) -> PlannedTensor:
    """Plan an unchanged copy of a tensor."""
    return PlannedTensor(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=tensor.shape,
        n_bytes=tensor.end - tensor.start,
        chunks=lambda: tensor_bytes(tensor),
    )


def write_files(folder: Path, files: PlannedFiles, advance: Callable[[int], None]) -> None:
    """Write the files into ``folder``, with an index if needed, and call ``advance`` after each tensor.

    Raises ``CheckpointError`` if another program changes a source meanwhile.
    """
    for name, tensors in files.items():
        _write_file(folder / name, tensors, advance)
    if len(files) > 1 or "model.safetensors" not in files:
        _write_index(folder, files)


def _write_file(file: Path, tensors: Sequence[PlannedTensor], advance: Callable[[int], None]) -> None:
    # wide dtypes first, as in the safetensors library, so that each tensor is aligned to its element size
    ordered = sorted(tensors, key=lambda tensor: (-FLOAT_BYTES.get(tensor.dtype, 8), tensor.name))
    with file.open("wb") as stream:
        stream.write(_header(ordered))
        for tensor in ordered:
            n_written = sum(stream.write(chunk) for chunk in tensor.chunks())
            if n_written != tensor.n_bytes:
                raise CheckpointError(
                    f"{tensor.name}: its source changed while it was read; stop the program that writes it, and retry"
                )
            advance(1)


def _header(tensors: Sequence[PlannedTensor]) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for tensor in tensors:
        end = start + tensor.n_bytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end]}
        start = end
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(8, "little") + raw


def _write_index(folder: Path, files: PlannedFiles) -> None:
    if any(name.startswith("adapter_model") for name in files):
        return
    places = {tensor.name: name for name, tensors in files.items() for tensor in tensors}
    total = sum(tensor.n_bytes for tensors in files.values() for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
