"""Messages between the audit and vLLM's process. Imports neither torch nor vLLM."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A LoRA adapter. ``number`` must be unique in the engine, else vLLM keeps the old adapter."""

    number: int
    path: Path


@dataclass(frozen=True, kw_only=True)
class Start:
    """Build the engine. ``threads`` None: vLLM's default. ``eager``: no compilation."""

    arguments: dict[str, Any]
    threads: int | None
    eager: bool


@dataclass(frozen=True, kw_only=True)
class EngineCall:
    """Call a method of ``vllm.LLM``; the answer is its result."""

    method: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WorkerCall:
    """Call a method of every worker, vLLM's or one of ``vllm_worker``; the answer is the list of results."""

    method: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AddAdapter:
    """Load an adapter; the answer is whether this succeeded."""

    adapter: Adapter


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Draw ``n`` responses to a prompt; response ``i`` depends only on ``seed + i`` and these fields.

    Temperature 0 is greedy and needs no seed. A response ends with a token of ``end_ids`` or after ``max_tokens``.
    ``entropy`` requires the worker's hook, and returns the entropy of every next-token distribution.
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
    """Draws that an idle engine starts in the same step."""

    draws: tuple[Draw, ...]


@dataclass(frozen=True, kw_only=True)
class Abort:
    """Drop every unfinished draw. Not answered; finished draws may still arrive."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """End the process."""


Order = Start | EngineCall | WorkerCall | AddAdapter | Draws | Abort | Stop


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Result of an order that has one; None for ``Start``."""

    value: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnRow:
    """One response: tokens (end token included), their log-probabilities and entropies in nats.

    Both are at temperature 1 over the full vocabulary; ``entropy_T`` is None without the hook.
    """

    token_ids: tuple[int, ...]
    logp_T: Float[np.ndarray, " token"]
    entropy_T: Float[np.ndarray, " token"] | None


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """All rows of one ``Draw``, in order."""

    ticket: int
    rows: tuple[DrawnRow, ...]


#: Prefix of an error that a smaller batch does not fix.
WHILE_READING_WEIGHTS = "while reading the weights"


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The engine raised; the process ends."""

    error: str


Reply = Answer | Drawn | Failed
