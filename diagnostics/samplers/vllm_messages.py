"""Messages between the audit and vLLM's process. Light: imports neither torch nor vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A LoRA adapter. ``number`` is unique in the engine.

    VLLM keeps the old adapter if a number repeats.
    """

    number: int
    path: Path


@dataclass(frozen=True, kw_only=True)
class Start:
    """Build the engine: arguments of ``vllm.LLM``; CPU threads (None: vLLM chooses).

    ``eager``: no compilation.
    """

    arguments: dict[str, Any]
    threads: int | None
    eager: bool


@dataclass(frozen=True, kw_only=True)
class Call:
    """Call a method of every worker, vLLM's or one of ``vllm_worker``.

    The answer is the list of results.
    """

    method: str
    arguments: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ResetPrefixCache:
    """Clear the prefix cache; the answer is whether that succeeded."""


@dataclass(frozen=True, kw_only=True)
class Sleep:
    """Release the GPU: weights move to the machine's memory, the cache is dropped.

    Answered when done.
    """


@dataclass(frozen=True, kw_only=True)
class WakeUp:
    """Take the GPU's memory back after ``Sleep``; answered when done."""


@dataclass(frozen=True, kw_only=True)
class AddAdapter:
    """Load an adapter; the answer is whether that succeeded."""

    adapter: Adapter


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Draw ``n`` responses to one prompt.

    row ``i`` depends only on the prompt, ``seed + i`` and the settings.

    Temperature 0 is greedy and needs no seed. A response ends with one of ``end_ids`` or after ``max_tokens``.
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


Order = Start | Call | ResetPrefixCache | Sleep | WakeUp | AddAdapter | Draws | Abort | Stop


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Result of an order that has one; None for ``Start``."""

    value: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnRow:
    """One response: tokens (end token included), their log-probabilities and entropies in nats.

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


#: Prefix of an error that a smaller batch does not fix.
WHILE_READING_WEIGHTS = "while reading the weights"


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The engine raised; the process ends."""

    error: str


Reply = Answer | Drawn | Failed
