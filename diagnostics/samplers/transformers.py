"""Sampler for any machine: batched ``generate`` of transformers, on CPU or GPU.

A sample depends only on its identity, and not on the other rows of its batch. Token ``t`` of a row uses random number
``t`` of the row's key (``contract.row_key``), which is a pure function of key and ``t``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from oversharp.diagnostics.models.devices import suitable_threads
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.models.tokens import encode_prompt, pad_left, require_fit, response_texts
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import Checkpoint, Problem, Sample, SamplingSettings
from oversharp.diagnostics.samplers.contract import SamplerContext, SampleRequest, row_key

MAX_ROWS = 1024
#: Limit of the memory for a batch's KV cache and logits: bytes on a CPU, a share of the free memory on a GPU.
CPU_BATCH_BYTES = 1 << 30
GPU_FREE_SHARE = 0.5
#: Elements of a (row, vocabulary) table that are converted to float64 at a time: 128 MiB.
_ELEMENTS_PER_CHUNK = 1 << 24

# Constants of splitmix64 (Steele, Lea, Flood 2014: Fast splittable pseudorandom number generators, fig. 15–17). They
# are signed, because torch has no unsigned 64-bit arithmetic. Signed overflow wraps to the same bits.
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


@dataclass(frozen=True, kw_only=True)
class _SampleRow:
    """A response to sample."""

    problem: Problem
    problem_id: str
    sample_index: int
    greedy: bool
    prompt_ids: tuple[int, ...]
    key: int


class TransformersSampler:
    """Sampler that uses ``model.generate`` of transformers.

    The context's ``batch_size`` is the number of responses per batch. By default it is the number that fits in memory,
    at most 1,024. It is halved if a GPU runs out of memory. Only the last bits of log-probabilities depend on it.
    """

    name = "transformers"

    def __init__(self, context: SamplerContext) -> None:
        self._models = context.models
        self._batch_size = context.batch_size
        self._most_rows: int | None = None  # limit of the batch size after a GPU ran out of memory

    def sample(
        self, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Yield finished samples batch by batch. Prompts in a batch have similar lengths.

        Raises ``SamplerError`` if a prompt and ``max_tokens`` exceed the context, if the model returns NaN, or if a
        single response does not fit in the GPU's memory.
        """
        loaded = self._models.load(checkpoint)
        rows = _rows(loaded, checkpoint, requests, settings)
        if not rows:
            return
        size = self._batch_size or _rows_that_fit(loaded, len(rows[-1].prompt_ids) + settings.max_tokens)
        for first in range(0, len(rows), size):
            yield from self._draw(checkpoint, loaded, rows[first : first + size], settings)

    def _draw(
        self, checkpoint: Checkpoint, loaded: LoadedModel, rows: Sequence[_SampleRow], settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Sample one batch, in smaller pieces if it does not fit in memory."""
        done = 0
        while done < len(rows):
            piece = rows[done : done + (self._most_rows or len(rows))]
            try:
                samples = _generate(loaded, piece, settings)
            except torch.OutOfMemoryError:
                if len(piece) == 1:
                    raise SamplerError(
                        f"{checkpoint.label}: a single response does not fit in the memory of {loaded.device}; "
                        "lower --max-tokens or pass --dtype bfloat16"
                    ) from None
                self._most_rows = len(piece) // 2
                torch.cuda.empty_cache()
                continue
            done += len(piece)
            yield samples

    def close(self) -> None:
        """Release the model. The next ``sample`` loads it again."""
        self._models.close()


def _rows(
    loaded: LoadedModel, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings
) -> list[_SampleRow]:
    rows = []
    for request in requests:
        problem_id = request.problem.problem_id
        prompt_ids = encode_prompt(loaded.tokenizer, request.problem, settings)
        require_fit(loaded, request.problem, prompt_ids, n_response=settings.max_tokens)
        draws = [(index, False) for index in request.sample_indices] + ([(0, True)] if request.greedy else [])
        rows += [
            _SampleRow(
                problem=request.problem,
                problem_id=problem_id,
                sample_index=index,
                greedy=greedy,
                prompt_ids=tuple(prompt_ids),
                key=row_key(settings.seed, checkpoint.checkpoint_id, problem_id, index),
            )
            for index, greedy in draws
        ]
    return sorted(rows, key=lambda row: len(row.prompt_ids))


def _rows_that_fit(loaded: LoadedModel, n_tokens: int) -> int:
    """Return the number of rows that fit in memory, rounded down to a power of two.

    Each row has ``n_tokens`` tokens.
    """
    config = loaded.model.config.get_text_config()
    heads = getattr(config, "num_attention_heads", 1)  # recurrent models have no attention heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    cache_bytes = 2 * config.num_hidden_layers * kv_heads * head_dim * n_tokens * loaded.model.dtype.itemsize
    logit_bytes = 3 * loaded.vocabulary_size * torch.float32.itemsize  # original, copy and masked copy
    memory = CPU_BATCH_BYTES
    if loaded.device.type == "cuda":
        memory = int(GPU_FREE_SHARE * torch.cuda.mem_get_info(loaded.device)[0])
    rows = max(1, memory // (cache_bytes + logit_bytes))
    return int(min(MAX_ROWS, 1 << (rows.bit_length() - 1)))


@torch.inference_mode()
def _generate(loaded: LoadedModel, rows: Sequence[_SampleRow], settings: SamplingSettings) -> list[Sample]:
    prompt_ids_BL, mask_BL = pad_left([row.prompt_ids for row in rows], loaded)
    width = prompt_ids_BL.shape[1]
    draw = SeededDraw(
        keys=[row.key for row in rows],
        greedy=[row.greedy for row in rows],
        prompt_width=width,
        settings=settings,
        device=loaded.device,
    )
    model: Any = loaded.model  # transformers types generate's mixin, not the model
    with suitable_threads(loaded.model):
        ids_BL = model.generate(
            input_ids=prompt_ids_BL,
            attention_mask=mask_BL.long(),
            past_key_values=_prefix_cache(loaded, rows),
            logits_processor=LogitsProcessorList([draw]),
            generation_config=_greedy_decoding(loaded, max_new_tokens=settings.max_tokens),
        )
    response_BT = ids_BL[:, width:]
    # on a GPU, generate may run a few steps too many and drop their tokens
    logp_BT = torch.stack(draw.logp_steps[: response_BT.shape[1]], dim=1)
    return _samples(loaded, rows, response_BT, logp_BT)


def _greedy_decoding(loaded: LoadedModel, *, max_new_tokens: int) -> GenerationConfig:
    return GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=list(loaded.end_ids),
        pad_token_id=loaded.pad_id,
        use_cache=True,
    )


def _prefix_cache(loaded: LoadedModel, rows: Sequence[_SampleRow]) -> Any:
    """Prefill each distinct prompt once, and return the cache with one copy per row.

    The last token of each prompt is not prefilled, because ``generate`` needs at least one input token. Returns None if
    no prompt is repeated, a prompt has only one token, or the cache cannot be copied.
    """
    distinct = list(dict.fromkeys(row.prompt_ids for row in rows))
    if len(distinct) == len(rows) or min(map(len, distinct)) < 2:
        return None
    ids_PL, mask_PL = pad_left([ids[:-1] for ids in distinct], loaded)
    model: Any = loaded.model
    config = _greedy_decoding(loaded, max_new_tokens=1)
    config.return_dict_in_generate = True
    cache = model.generate(input_ids=ids_PL, attention_mask=mask_PL.long(), generation_config=config).past_key_values
    # the state of a recurrent layer cannot be copied per row this way
    if not all(hasattr(layer, "batch_select_indices") for layer in getattr(cache, "layers", [None])):
        return None
    place = {ids: index for index, ids in enumerate(distinct)}
    cache.batch_select_indices(torch.tensor([place[row.prompt_ids] for row in rows]))  # a CPU tensor suits all layers
    return cache


def _samples(
    loaded: LoadedModel,
    rows: Sequence[_SampleRow],
    response_BT: Int[Tensor, "row token"],
    logp_BT: Float[Tensor, "row token"],
) -> list[Sample]:
    is_end_BT = torch.isin(response_BT, torch.tensor(loaded.end_ids, device=response_BT.device))
    # a row ends at its first end token; later tokens are padding
    is_response_BT = is_end_BT.long().cumsum(dim=1) - is_end_BT.long() == 0
    logp_sum_B = torch.where(is_response_BT, logp_BT.double(), 0.0).sum(dim=1)
    if not bool(logp_sum_B.isfinite().all()):
        first_invalid = rows[int((~logp_sum_B.isfinite()).nonzero()[0, 0])]
        raise SamplerError(
            f"problem {first_invalid.problem_id}: the model returns NaN or infinite logits for its prompt; "
            "try --dtype float32, or leave this checkpoint out"
        )
    lengths = is_response_BT.sum(dim=1).tolist()
    token_rows = [tuple(tokens[:length]) for tokens, length in zip(response_BT.tolist(), lengths, strict=True)]
    texts = response_texts(loaded.tokenizer, token_rows)
    return [
        Sample(
            problem_id=row.problem_id,
            sample_index=row.sample_index,
            greedy=row.greedy,
            text=text,
            token_ids=tokens,
            finish_reason="stop" if stopped else "length",
            logp_sum_raw=logp_sum,
        )
        for row, tokens, text, stopped, logp_sum in zip(
            rows, token_rows, texts, is_end_BT.any(dim=1).tolist(), logp_sum_B.tolist(), strict=True
        )
    ]


# ---------------------------------------------------------------- random numbers


def uniform(key_B: Int[Tensor, " row"], position: int) -> Float[Tensor, " row"]:
    """Return uniform random number ``position`` of each key: 52 bits of splitmix64, in [0, 1).

    >>> uniform(torch.tensor([0]), 0)  # splitmix64 seeded with 0 gives 0xE220A8397B1DCDAF first
    tensor([0.8833], dtype=torch.float64)
    """
    step = (_STEP * (position + 1) + (1 << 63)) % (1 << 64) - (1 << 63)
    bits_B = key_B + step
    bits_B = (bits_B ^ _shift_right(bits_B, 30)) * _MIX_1
    bits_B = (bits_B ^ _shift_right(bits_B, 27)) * _MIX_2
    bits_B = bits_B ^ _shift_right(bits_B, 31)
    # 52 bits, because with 53 bits u times a total just below 1 could round up to the total
    return _shift_right(bits_B, 12).double() * 2.0**-52


def _shift_right(bits_B: Int[Tensor, " row"], n: int) -> Int[Tensor, " row"]:
    return (bits_B >> n) & ((1 << (64 - n)) - 1)


def draw_tokens(logits_BV: Float[Tensor, "row vocabulary"], uniform_B: Float[Tensor, " row"]) -> Int[Tensor, " row"]:
    """Sample one token per row from softmax(logits), by the inverse CDF in float64.

    In float32 the rounding error of a sum over a large vocabulary would exceed the probability of rare tokens. A token
    with probability 0 is never sampled.

    >>> logits = torch.tensor([[0.0, -torch.inf, 0.0], [0.0, -torch.inf, 0.0]])
    >>> draw_tokens(logits, torch.tensor([0.2, 0.5], dtype=torch.float64)).tolist()
    [0, 2]
    """
    cumulative_BV = logits_BV.double().softmax(dim=-1).cumsum(dim=-1)
    threshold_B1 = uniform_B[:, None] * cumulative_BV[:, -1:]
    token_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True)[:, 0]
    return token_B.clamp(max=logits_BV.shape[1] - 1)  # NaN logits give any index; their NaN logp reveals them later


class SeededDraw(LogitsProcessor):
    """Logits processor that samples the next token and masks all others.

    So greedy ``generate`` selects the sampled token. ``logp_steps`` collects the log-probability of each step's token,
    at temperature 1 over the whole vocabulary, in nats, as float32.
    """

    def __init__(
        self,
        *,
        keys: Sequence[int],
        greedy: Sequence[bool],
        prompt_width: int,
        settings: SamplingSettings,
        device: torch.device,
    ) -> None:
        self.logp_steps: list[Float[Tensor, " row"]] = []
        self._key_B = torch.tensor(keys, dtype=torch.int64, device=device)
        self._greedy_B: Bool[Tensor, " row"] = torch.tensor(greedy, device=device)
        self._prompt_width = prompt_width
        self._warpers = _warpers(settings)

    def __call__(self, input_ids: Int[Tensor, "row token"], scores: Float[Tensor, "row vocabulary"]) -> Tensor:
        logits_BV = scores  # transformers passes this argument by keyword
        uniform_B = uniform(self._key_B, input_ids.shape[1] - self._prompt_width)
        rows_per_chunk = max(1, _ELEMENTS_PER_CHUNK // logits_BV.shape[1])
        token_B = torch.cat(
            [
                torch.where(greedy, logits.argmax(dim=-1), draw_tokens(self._warpers(ids, logits), u))
                for ids, logits, u, greedy in zip(
                    input_ids.split(rows_per_chunk),
                    logits_BV.split(rows_per_chunk),
                    uniform_B.split(rows_per_chunk),
                    self._greedy_B.split(rows_per_chunk),
                    strict=True,
                )
            ]
        )
        token_B1 = token_B[:, None]
        self.logp_steps.append(logits_BV.gather(1, token_B1)[:, 0] - logits_BV.logsumexp(dim=-1))
        return torch.full_like(logits_BV, -torch.inf).scatter_(1, token_B1, 0.0)


def _warpers(settings: SamplingSettings) -> LogitsProcessorList:
    """Return the processors for temperature, top-k and top-p, in this order.

    transformers and vLLM use the same order.
    """
    warpers = LogitsProcessorList()
    if settings.temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(settings.temperature))
    if settings.top_k > 0:
        warpers.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1.0:
        warpers.append(TopPLogitsWarper(settings.top_p))
    return warpers
