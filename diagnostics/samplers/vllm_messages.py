"""What the audit and the process that vLLM runs in say to each other. Light: neither torch nor vLLM is imported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A LoRA adapter. ``number`` is its own in the engine: vLLM keeps the old adapter where one comes again."""

    number: int
    path: Path


@dataclass(frozen=True, kw_only=True)
class Start:
    """Build the engine: keyword arguments of ``vllm.LLM``; CPU threads, None: vLLM chooses; ``eager``: no compiling."""

    arguments: dict[str, Any]
    threads: int | None
    eager: bool


@dataclass(frozen=True, kw_only=True)
class Call:
    """Call a method of every worker, its own or one of ``vllm_worker``; answered by the list of what they return."""

    method: str
    arguments: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ResetPrefixCache:
    """Forget what the prefix cache holds; answered by whether that worked."""


@dataclass(frozen=True, kw_only=True)
class Sleep:
    """Leave the GPU to others: weights go to the machine's memory, the cache is dropped; answered when that is done."""


@dataclass(frozen=True, kw_only=True)
class WakeUp:
    """Take the GPU's memory back after ``Sleep``; answered when that is done."""


@dataclass(frozen=True, kw_only=True)
class AddAdapter:
    """Load an adapter; answered by whether that worked."""

    adapter: Adapter


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Draw ``n`` responses to one prompt; row ``i`` depends on the prompt, ``seed + i`` and the settings alone.

    Temperature 0 is greedy and needs no seed. A response ends with one of ``end_ids`` or after ``max_tokens``.
    ``entropy``: the worker's hook is on, and ships the entropy of every next-token distribution.
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
    """Draws that the engine takes up in the same step if it is idle."""

    draws: tuple[Draw, ...]


@dataclass(frozen=True, kw_only=True)
class Abort:
    """Drop every draw that is not finished. Not answered; what was finished before may still come."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """End the process."""


Order = Start | Call | ResetPrefixCache | Sleep | WakeUp | AddAdapter | Draws | Abort | Stop


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of an order that has one; ``Start`` is answered by None."""

    value: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnRow:
    """One response: its tokens, the end token included, their log-probabilities and entropies in nats.

    Both at temperature 1 over the full vocabulary; ``entropy_T`` is None without the hook.
    """

    token_ids: tuple[int, ...]
    logp_T: Float[np.ndarray, " token"]
    entropy_T: Float[np.ndarray, " token"] | None


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """All rows of one ``Draw``, in order."""

    ticket: int
    rows: tuple[DrawnRow, ...]


#: How an error begins that no smaller batch mends.
WHILE_READING_WEIGHTS = "while reading the weights"


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The engine raised; the process ends."""

    error: str


Reply = Answer | Drawn | Failed
