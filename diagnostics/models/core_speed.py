"""Measure the speed of one CPU core.

Time estimates of an audit are scaled by this speed. An audit decodes responses token by token, scores whole responses,
and computes gradients. The speed ratio of two machines differs between these three tasks, so each is measured
separately, in floating-point operations per CPU second of one thread. Operations are counted as in
``ModelShape.token_flop``; a gradient counts as three passes. The measured model has the widths of SmolLM2-135M, a few
of its layers, and random weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oversharp.diagnostics.models.load import Dtype

_LAYERS, _HIDDEN, _INNER, _HEADS, _KV_HEADS, _WORDS = 4, 576, 1536, 9, 3, 8192
#: Rows and tokens of each trial, and the number of repetitions. The fastest repetition is used, because other programs
#: can only slow a trial down.
_ROWS, _PROMPT, _STEPS, _READ_ROWS, _GRADIENT_ROWS, _TRIES = 64, 48, 8, 16, 4, 3


@dataclass(frozen=True, kw_only=True)
class CoreSpeed:
    """Floating-point operations per CPU second of one thread.

    ``decoding`` (sampling token by token) and ``reading`` (scoring whole responses) are measured in ``dtype``,
    ``gradients`` in float32.
    """

    dtype: str
    decoding: float
    reading: float
    gradients: float


def measure_core(dtype: Dtype) -> CoreSpeed:
    """Measure the speed of this machine's CPU. Takes two to four seconds."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from oversharp.diagnostics.models.devices import cpu_threads

    config = LlamaConfig(
        hidden_size=_HIDDEN,
        intermediate_size=_INNER,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        num_key_value_heads=_KV_HEADS,
        vocab_size=_WORDS,
        tie_word_embeddings=True,
    )
    with cpu_threads(1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        exact = LlamaForCausalLM(config).eval()
        n_parameters = sum(parameter.numel() for parameter in exact.parameters())
        ids_BL = torch.randint(_WORDS, (_ROWS, _PROMPT + _STEPS))

        def flop(n_tokens: int, seen: float) -> float:
            return n_tokens * (2.0 * n_parameters + 4.0 * _LAYERS * _HIDDEN * seen)

        def gradients() -> None:
            exact(input_ids=ids_BL[:_GRADIENT_ROWS], use_cache=False).logits.logsumexp(dim=-1).sum().backward()
            exact.zero_grad()

        width = ids_BL.shape[1]
        gradients_s = _least_s(gradients)
        model = exact.to(getattr(torch, dtype))

        @torch.inference_mode()
        def decoding() -> float:
            cache = model(input_ids=ids_BL[:, :_PROMPT], use_cache=True, logits_to_keep=1).past_key_values
            start = time.thread_time()
            for place in range(_PROMPT, width):
                model(input_ids=ids_BL[:, place : place + 1], past_key_values=cache, use_cache=True)
            return time.thread_time() - start

        @torch.inference_mode()
        def reading() -> None:
            model(input_ids=ids_BL[:_READ_ROWS], use_cache=False)

        return CoreSpeed(
            dtype=dtype,
            decoding=flop(_ROWS * _STEPS, _PROMPT + _STEPS / 2) / min(decoding() for _ in range(_TRIES)),
            reading=flop(_READ_ROWS * width, width / 2) / _least_s(reading),
            gradients=3 * flop(_GRADIENT_ROWS * width, width / 2) / gradients_s,
        )


def _least_s(trial: Callable[[], None]) -> float:
    times = []
    for _ in range(_TRIES):
        start = time.thread_time()
        trial()
        times.append(time.thread_time() - start)
    return min(times)
