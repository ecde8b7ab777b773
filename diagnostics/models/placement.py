"""Distribute a model that does not fit one GPU over all GPUs and the CPU memory.

accelerate assigns the layers in order to one device after the other, and moves activations between devices. Weights in
CPU memory are copied to a GPU for each use, which takes many times as long.
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

#: A model uses one GPU if its weights take at most this share of the GPU's free memory. If little memory is left,
#: batches are halved.
FITS_SHARE = 0.95
#: Share of the free memory for the weights of a distributed model. Activations, logits and caches need the rest.
WEIGHTS_SHARE = 0.8
#: Share of each GPU's total memory that is kept for activations, logits and caches, in addition to an engine's share.
_ACTIVATIONS_SHARE = 0.1

#: Maximum bytes of weights on each GPU, by its index, and in CPU memory (key "cpu").
Room = Mapping[int | str, int]


def find_room(
    path: str | Path, dtype: torch.dtype, device: torch.device, *, engine_share: float, name: str
) -> Room | None:
    """Return the memory limits of each device for a model that does not fit ``device``.

    Returns None if the model fits, or if ``device`` is a CPU. For a device with an index, such as cuda:1, only that GPU
    is used. ``engine_share`` of each GPU is reserved for the sampling engine. Raises ``CheckpointError`` if all memory
    together is too small.
    """
    if device.type != "cuda":
        return None
    numel = sum(math.prod(tensor.shape) for tensor in stored_tensors(weight_files(Path(path))))
    gpus = range(torch.cuda.device_count()) if device.index is None else [device.index]
    memory = {number: torch.cuda.mem_get_info(number) for number in gpus}
    return plan_room(numel * dtype.itemsize, memory, free_bytes(), engine_share=engine_share, name=name)


def plan_room(
    model_bytes: float,
    memory: Mapping[int, tuple[float, float]],
    machine_free: float,
    *,
    engine_share: float,
    name: str,
) -> Room | None:
    """Return the memory limits of each device, or None if the model fits the first GPU.

    ``memory`` is the free and total memory of each GPU in bytes, ``machine_free`` the free CPU memory.

    >>> two = {0: (100, 100), 1: (100, 100)}
    >>> plan_room(90, two, 500, engine_share=0.0, name="m") is None
    True
    >>> plan_room(140, two, 500, engine_share=0.0, name="m"), plan_room(140, two, 500, engine_share=0.6, name="m")
    ({0: 80, 1: 80, 'cpu': 400}, {0: 30, 1: 30, 'cpu': 400})
    """
    if model_bytes <= FITS_SHARE * next(iter(memory.values()))[0]:
        return None
    share = round(1.0 - engine_share - _ACTIVATIONS_SHARE, 6)
    on_each = {number: int(min(WEIGHTS_SHARE * free, share * total)) for number, (free, total) in memory.items()}
    room: dict[int | str, int] = {number: n_bytes for number, n_bytes in on_each.items() if n_bytes > 0}
    if not room:
        raise CheckpointError(
            f"{name} does not fit the GPU, and vLLM's share of {engine_share:g} leaves no memory for a part of "
            "the model; lower --gpu-memory-share"
        )
    on_gpus = sum(room.values())
    room["cpu"] = int(WEIGHTS_SHARE * min(machine_free, 2.0**62))
    if model_bytes > on_gpus + room["cpu"]:
        raise CheckpointError(
            f"{name} needs {model_bytes / 2**30:.0f} GiB, but only {on_gpus / 2**30:.0f} GiB are free on "
            f"{'the GPU' if len(memory) == 1 else f'{len(memory)} GPUs'} and {room['cpu'] / 2**30:.0f} GiB in this "
            "machine's memory; stop other programs, pass --dtype bfloat16, or use a larger machine"
        )
    return room


def placement_note(room: Room) -> str:
    """Return a message to the user about a distributed model.

    >>> placement_note({0: 80, "cpu": 400})
    'the model does not fit one GPU: it is distributed over GPU 0 and the memory of the machine, which is many times
    slower; no kernels are computed'
    """
    gpus = [str(device) for device in room if device != "cpu"]
    where = f"GPU {gpus[0]}" if len(gpus) == 1 else f"GPUs {', '.join(gpus)}"
    return (
        f"the model does not fit one GPU: it is distributed over {where} and the memory of the machine, which is many "
        "times slower; no kernels are computed"
    )


def numbers_of(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and values of all parameters.

    Unlike ``named_parameters``, it yields the values of offloaded parameters too.
    """
    for prefix, module in model.named_modules():
        offloaded = getattr(getattr(module, "_hf_hook", None), "weights_map", None)
        for name, parameter in module.named_parameters(recurse=False):
            numbers = parameter if parameter.device.type != "meta" or offloaded is None else offloaded[name]
            yield f"{prefix}.{name}".lstrip("."), numbers
