"""Messages between the audit's process and vLLM's process. Imports neither torch nor vLLM."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A LoRA adapter.

    ``number`` must be unique in an engine. If a number is reused, vLLM keeps the adapter that it loaded first.
    """

    number: int
    path: Path


@dataclass(frozen=True, kw_only=True)
class Start:
    """Order to build the engine.

    ``arguments`` are those of ``vllm.LLM``. ``threads`` is the number of CPU threads, None for vLLM's default.
    ``eager`` disables compilation.
    """

    arguments: dict[str, Any]
    threads: int | None
    eager: bool


@dataclass(frozen=True, kw_only=True)
class EngineCall:
    """Order to call a method of ``vllm.LLM``. The answer is the method's result."""

    method: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WorkerCall:
    """Order to call a method of every vLLM worker, including those of ``vllm_worker``.

    The answer is the list of the workers' results.
    """

    method: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AddAdapter:
    """Order to load an adapter. The answer is whether it was loaded."""

    adapter: Adapter


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Order to generate ``n`` responses to a prompt.

    Response ``i`` depends only on ``seed + i`` and the other fields. Temperature 0 is greedy and needs no seed. A
    response ends with a token of ``end_ids`` or after ``max_tokens`` tokens. ``entropy`` requests the entropy of every
    next-token distribution, which requires ``WorkerExtension.oversharp_hook_entropy``. ``ticket`` identifies the reply.
    """

    ticket: int
    prompt_ids: tuple[int, ...]
    n: int
    seed: int | None
    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    end_ids: tuple[int, ...]
    entropy: bool
    adapter: Adapter | None


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Order with several draws. An idle engine starts all of them in the same step."""

    draws: tuple[Draw, ...]


@dataclass(frozen=True, kw_only=True)
class Abort:
    """Order to drop every unfinished draw.

    There is no answer. Draws that finished before may still arrive.
    """


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Order to end the process."""


Order = Start | EngineCall | WorkerCall | AddAdapter | Draws | Abort | Stop


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Reply with the result of an order, None for ``Start``."""

    value: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnRow:
    """One generated response.

    ``token_ids`` include the end token. ``logp_T`` and ``entropy_T`` are in nats, at temperature 1 over the full
    vocabulary. ``entropy_T`` is None if the draw did not request entropies.
    """

    token_ids: tuple[int, ...]
    logp_T: Float[np.ndarray, " token"]
    entropy_T: Float[np.ndarray, " token"] | None


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Reply with all responses of one ``Draw``, in order."""

    ticket: int
    rows: tuple[DrawnRow, ...]


#: Prefix of the error if memory ran out while weights were loaded. A smaller batch does not fix this error.
WHILE_READING_WEIGHTS = "while reading the weights"


@dataclass(frozen=True, kw_only=True)
class Failed:
    """Reply if the engine raised an error. The process ends afterwards."""

    error: str


Reply = Answer | Drawn | Failed
