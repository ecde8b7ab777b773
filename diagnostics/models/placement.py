"""Where a model lies that one GPU has no room for: over all GPUs, and what is left in the machine's memory.

Layers are put in their order on one device after the other, and activations move between them (accelerate's dispatch).
What lies in the machine's memory is brought to a GPU whenever it is used, which takes many times as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.records.memory import free_bytes
from oversharp.diagnostics.series.weights import stored_tensors, weight_files

#: A model that takes no more than this share of what is free lies on one GPU: batches are halved where little is left.
FITS_SHARE = 0.95
#: Of what is free where a model is spread, so much is for weights: activations, logits and caches want the rest.
WEIGHTS_SHARE = 0.8
#: Beside an engine and the weights, so much of a GPU is for these.
_ACTIVATIONS_SHARE = 0.1

#: Bytes for weights on each GPU, by its number, and in the machine's memory ("cpu").
Room = Mapping[int | str, int]


def room_to_spread(
    path: str | Path, dtype: torch.dtype, device: torch.device, *, engine_share: float, name: str
) -> Room | None:
    """The room for a model that does not fit ``device``; None where it does, and on a CPU.

    A device with a number stands for that GPU alone. ``engine_share`` of each GPU is somebody else's. Raises
    ``CheckpointError`` where all of it together does not do.
    """
    if device.type != "cuda":
        return None
    numel = sum(math.prod(one.shape) for one in stored_tensors(weight_files(Path(path))))
    gpus = range(torch.cuda.device_count()) if device.index is None else [device.index]
    memory = {number: torch.cuda.mem_get_info(number) for number in gpus}
    return room_for(numel * dtype.itemsize, memory, free_bytes(), engine_share=engine_share, name=name)


def room_for(
    model_bytes: float,
    memory: Mapping[int, tuple[float, float]],
    machine_free: float,
    *,
    engine_share: float,
    name: str,
) -> Room | None:
    """The same from numbers: of a model's bytes, of what is free of the memory of each GPU, and free in the machine.

    >>> two = {0: (100, 100), 1: (100, 100)}
    >>> room_for(90, two, 500, engine_share=0.0, name="m") is None
    True
    >>> room_for(140, two, 500, engine_share=0.0, name="m"), room_for(140, two, 500, engine_share=0.6, name="m")
    ({0: 80, 1: 80, 'cpu': 400}, {0: 30, 1: 30, 'cpu': 400})
    """
    if model_bytes <= FITS_SHARE * next(iter(memory.values()))[0]:
        return None
    beside = 1.0 - engine_share - _ACTIVATIONS_SHARE
    on_each = {n: int(min(WEIGHTS_SHARE * free, round(beside, 6) * total)) for n, (free, total) in memory.items()}
    room: dict[int | str, int] = {number: one for number, one in on_each.items() if one > 0}
    if not room:
        raise CheckpointError(
            f"{name} does not fit the GPU, and beside vLLM's share of {engine_share:g} there is no room for a part of "
            "it; lower --gpu-memory-share"
        )
    on_gpus = sum(room.values())
    room["cpu"] = int(WEIGHTS_SHARE * min(machine_free, 2.0**62))
    if model_bytes > on_gpus + room["cpu"]:
        raise CheckpointError(
            f"{name} takes {model_bytes / 2**30:.0f} GiB, and there is room for {on_gpus / 2**30:.0f} GiB on "
            f"{'the GPU' if len(memory) == 1 else f'{len(memory)} GPUs'} and {room['cpu'] / 2**30:.0f} GiB in this "
            "machine's memory; free it of other programs, pass --dtype bfloat16, or take a larger machine"
        )
    return room


def placement_note(room: Room) -> str:
    """What a user should know of a model that is spread.

    >>> placement_note({0: 80, "cpu": 400})
    'the model does not fit one GPU: it lies on GPU 0 and, as far as that lacks room, in memory of the machine, which is
    many times slower; no kernels'
    """
    gpus = [str(one) for one in room if one != "cpu"]
    where = f"GPU {gpus[0]}" if len(gpus) == 1 else f"GPUs {', '.join(gpus)}"
    lack = "that lacks" if len(gpus) == 1 else "they lack"
    return (
        f"the model does not fit one GPU: it lies on {where} and, as far as {lack} room, in memory of the machine, "
        "which is many times slower; no kernels"
    )


def numbers_of(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every parameter with its name, as ``named_parameters`` has them but for those that wait in the machine's memory.

    These are empty in the model.
    """
    for prefix, module in model.named_modules():
        waiting = getattr(getattr(module, "_hf_hook", None), "weights_map", None)
        for name, parameter in module.named_parameters(recurse=False):
            numbers = parameter if parameter.device.type != "meta" or waiting is None else waiting[name]
            yield f"{prefix}.{name}".lstrip("."), numbers
