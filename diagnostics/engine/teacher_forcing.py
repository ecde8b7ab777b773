"""Teacher forcing: log-probabilities of given responses at temperature 1, not truncated.

``log π(y|x) = Σ_t log π(y_t | x, y_<t)`` and the entropies ``H_t`` of the same next-token distributions, in nats.
Logits are computed only at response positions, and in chunks of positions, so that long responses with a large
vocabulary fit into memory. Responses of a batch share their prompt's KV cache if the model supports it
(``oversharp.diagnostics.models.cached_passes``).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from oversharp.diagnostics.models.batch_sizes import TOKEN_BUDGET, tokens_per_batch
from oversharp.diagnostics.models.cached_passes import (
    ReadingRules,
    adapter_starts,
    can_continue,
    find_reading_rules,
    innermost,
    positions,
    read_prompts,
)
from oversharp.diagnostics.models.devices import elements_per_chunk, suitable_threads
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.models.tokens import encode_prompt, require_fit
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import ForcedResponse, Problem, SamplingSettings
from oversharp.diagnostics.samplers.contract import EncodedResponse
from oversharp.diagnostics.samplers.seeded import PromptEncoder

#: Replaces −∞; its exp is 0 in every floating-point type.
_LEAST_LOGP = -1e4
#: Largest number of logits in memory on a CPU, and of a batch at one position: 256 MiB in float32.
_LOGITS_PER_CHUNK = 1 << 26
#: Largest number of logits that are converted to log-probabilities at a time. This needs three times their float32
#: size.
_LOGPS_PER_CHUNK = 1 << 23
#: Chunks of log-probabilities per chunk of logits on a GPU. Such a chunk of logits in half precision is a sixteenth of
#: the GPU's memory. Each chunk of logits costs a pass through the model: with chunks of 256 MiB, an H100 was ten times
#: as slow as with plain passes.
_LOGIT_CHUNKS_ON_A_GPU = 16


def budget_for(loaded: LoadedModel) -> int:
    """Return the token budget of a batch for this model and device."""
    width = getattr(loaded.model.config.get_text_config(), "hidden_size", None)
    return tokens_per_batch(None if width is None else int(width), on_cpu=loaded.device.type == "cpu")


def _logps_per_chunk(device: torch.device) -> int:
    return elements_per_chunk(device, _LOGPS_PER_CHUNK)


def _logits_per_chunk(device: torch.device) -> int:
    if device.type != "cuda":
        return _LOGITS_PER_CHUNK
    return max(_LOGITS_PER_CHUNK, _LOGIT_CHUNKS_ON_A_GPU * _logps_per_chunk(device))


@dataclass(frozen=True, kw_only=True)
class ForcedRequest:
    """A response to score: its id and its tokens, with the end token if it has one."""

    problem: Problem
    response_id: str
    token_ids: tuple[int, ...]


def teacher_force(
    loaded: LoadedModel,
    requests: Sequence[ForcedRequest],
    settings: SamplingSettings,
    *,
    token_budget: int = TOKEN_BUDGET,
) -> Iterator[list[ForcedResponse]]:
    """Yield scores batch by batch. ``settings`` contain the prompt's template.

    A batch has at most ``token_budget`` tokens, padding included, but at least one response. The last bits of a score
    depend on the other rows of its batch. If a batch does not fit into a GPU's memory, it and all later batches are
    computed in halves. Raises ``SamplerError`` for a response that is empty, exceeds the model's context or vocabulary,
    does not fit into memory alone, or gets NaN.
    """
    rows = encode_rows(loaded, requests, settings)
    most_rows = len(rows)
    for batch in _plan_batches(rows, loaded, token_budget):
        scores: list[ForcedResponse] = []
        while len(scores) < len(batch):
            piece = batch[len(scores) : len(scores) + most_rows]
            piece_scores = _try_batch(loaded, piece)
            if piece_scores is not None:
                scores += piece_scores
                continue
            if len(piece) == 1:
                where = f"problem {piece[0].problem_id}, response {piece[0].response_id}"
                raise SamplerError(
                    f"{where}: a single response does not fit in the memory of {loaded.device}; "
                    "pass --dtype bfloat16 or a lower --gpu-memory-share"
                )
            most_rows = len(piece) // 2
        yield scores


def encode_rows(
    encoder: PromptEncoder, requests: Sequence[ForcedRequest], settings: SamplingSettings
) -> list[EncodedResponse]:
    """Return a row per request, with the tokens of its prompt.

    Raises ``SamplerError`` for a response that is empty, or exceeds the model's context or vocabulary.
    """
    prompts: dict[str, tuple[int, ...]] = {}
    rows = []
    for request in requests:
        problem_id = request.problem.problem_id
        if problem_id not in prompts:
            prompts[problem_id] = tuple(encode_prompt(encoder.tokenizer, request.problem, settings))
        if not request.token_ids:
            raise SamplerError(
                f"problem {problem_id}, response {request.response_id}: no tokens, not even an end token"
            )
        if max(request.token_ids) >= encoder.vocabulary_size:
            raise SamplerError(
                f"problem {problem_id}, response {request.response_id}: token {max(request.token_ids)} is outside the "
                f"model's vocabulary of {encoder.vocabulary_size:,}; the tokenizer belongs to another model"
            )
        require_fit(encoder, request.problem, prompts[problem_id], n_response=len(request.token_ids))
        rows.append(
            EncodedResponse(
                problem_id=problem_id,
                response_id=request.response_id,
                prompt_ids=prompts[problem_id],
                token_ids=request.token_ids,
            )
        )
    return rows


def _plan_batches(
    rows: Sequence[EncodedResponse], loaded: LoadedModel, token_budget: int
) -> list[list[EncodedResponse]]:
    """Split the rows into batches, in the order that needs fewer tokens.

    Two orders are compared. Sorted by response length, there is the least padding. Sorted by prompt, each prompt is
    computed once if the model can share its KV cache. Rows on different sides of the length
    ``ReadingRules.changes_above`` are never in the same batch.
    """
    rules = find_reading_rules(loaded.model)
    batches: list[list[EncodedResponse]] = []
    for is_beyond in (False, True):
        side = [row for row in rows if rules.is_beyond(len(row.prompt_ids) + len(row.token_ids)) is is_beyond]
        plans = [list(_split_rows(order, loaded, token_budget, pads=rules.pads)) for order in _orders(side, rules)]
        batches += min(
            plans, key=lambda plan: sum(_count_tokens(batch, shares_prompts=rules.shares_prompts) for batch in plan)
        )
    return batches


def _orders(rows: Sequence[EncodedResponse], rules: ReadingRules) -> Iterator[list[EncodedResponse]]:
    if rules.pads:
        yield sorted(rows, key=lambda row: (len(row.token_ids), len(row.prompt_ids)))
    if rules.shares_prompts or not rules.pads:
        yield sorted(rows, key=lambda row: (len(row.prompt_ids), row.prompt_ids, len(row.token_ids)))


def _count_tokens(batch: Sequence[EncodedResponse], *, shares_prompts: bool) -> int:
    """Return the number of tokens that the model computes for a batch, including padding."""
    prompts = {row.prompt_ids for row in batch} if shares_prompts else [row.prompt_ids for row in batch]
    longest_response = max(len(row.token_ids) for row in batch)
    return len(prompts) * max(map(len, prompts)) + len(batch) * longest_response


def _split_rows(
    rows: Sequence[EncodedResponse], loaded: LoadedModel, token_budget: int, *, pads: bool
) -> Iterator[list[EncodedResponse]]:
    """Yield batches of consecutive rows.

    A batch has at most ``token_budget`` tokens and ``_LOGITS_PER_CHUNK`` logits per position. Without ``pads``, all its
    prompts have the same length.
    """
    most_rows = max(1, _LOGITS_PER_CHUNK // loaded.vocabulary_size)
    batch: list[EncodedResponse] = []
    prompt_width = response_width = 0
    for row in rows:
        # all responses start in the same column, so the width is the longest prompt plus the longest response
        prompt_width, response_width = max(prompt_width, len(row.prompt_ids)), max(response_width, len(row.token_ids))
        n_tokens = (len(batch) + 1) * (prompt_width + response_width)
        is_apart = bool(batch) and not pads and len(row.prompt_ids) != len(batch[-1].prompt_ids)
        if batch and (n_tokens > token_budget or len(batch) == most_rows or is_apart):
            yield batch
            batch, prompt_width, response_width = [], len(row.prompt_ids), len(row.token_ids)
        batch.append(row)
    if batch:
        yield batch


def _try_batch(loaded: LoadedModel, rows: Sequence[EncodedResponse]) -> list[ForcedResponse] | None:
    """Return the scores of a batch.

    If it does not fit into the GPU's memory, free the memory and return None.
    """
    try:
        return _score_batch(loaded, rows)
    except torch.OutOfMemoryError:
        pass  # leave the except block first, because the error keeps its tensors alive
    torch.cuda.empty_cache()
    return None


@torch.inference_mode()
def _score_batch(loaded: LoadedModel, rows: Sequence[EncodedResponse]) -> list[ForcedResponse]:
    """Score a batch.

    Prompts are padded left and responses right, so that all responses start in one column.
    """
    device = loaded.device
    prompt_width = max(len(row.prompt_ids) for row in rows)
    response_width = max(len(row.token_ids) for row in rows)
    ids_BL = torch.full((len(rows), prompt_width + response_width), loaded.pad_id)
    mask_BL = torch.zeros_like(ids_BL, dtype=torch.bool)
    for index, row in enumerate(rows):
        start, end = prompt_width - len(row.prompt_ids), prompt_width + len(row.token_ids)
        ids_BL[index, start:end] = torch.tensor([*row.prompt_ids, *row.token_ids])
        mask_BL[index, start:end] = True
    ids_BL, mask_BL = ids_BL.to(device), mask_BL.to(device)

    logp_BT = torch.zeros(len(rows), response_width, dtype=torch.float32, device=device)
    entropy_BT = torch.zeros_like(logp_BT)
    positions_per_chunk = max(1, _logits_per_chunk(device) // (len(rows) * loaded.vocabulary_size))
    with suitable_threads(loaded.model):
        for first, logits_BCV in _response_logits(loaded, rows, ids_BL, mask_BL, prompt_width, positions_per_chunk):
            for chosen, part in _blocks(*logits_BCV.shape, n_logps=_logps_per_chunk(device)):
                logp_RPV = logits_BCV[chosen, part].float().log_softmax(dim=-1)
                token_RP = ids_BL[chosen, first + part.start : first + part.stop]
                target = slice(first - prompt_width + part.start, first - prompt_width + part.stop)
                logp_BT[chosen, target] = logp_RPV.gather(2, token_RP[:, :, None])[:, :, 0]
                # p·log p, where 0·−∞ must be 0; torch.special.entr is equivalent but slower on a CPU
                entropy_BT[chosen, target] = -logp_RPV.exp().mul_(logp_RPV.clamp_(min=_LEAST_LOGP)).sum(dim=-1)
    is_response_BT = mask_BL[:, prompt_width:]
    invalid_B = ((~(logp_BT + entropy_BT).isfinite()) & is_response_BT).any(dim=1)
    if bool(invalid_B.any()):
        first_invalid = rows[int(invalid_B.nonzero()[0, 0])]
        raise SamplerError(
            f"problem {first_invalid.problem_id}: the model returns NaN or infinite log-probabilities; "
            "try --dtype float32, or remove this checkpoint"
        )
    logp_sum_B = logp_BT.double().where(is_response_BT, 0.0).sum(dim=1)
    entropy_sum_B = entropy_BT.double().where(is_response_BT, 0.0).sum(dim=1)
    scores = zip(rows, logp_sum_B.tolist(), entropy_sum_B.tolist(), logp_BT.tolist(), entropy_BT.tolist(), strict=True)
    return [
        ForcedResponse(
            problem_id=row.problem_id,
            response_id=row.response_id,
            logp_sum=logp_sum,
            entropy_sum=entropy_sum,
            token_logps=tuple(logps[: len(row.token_ids)]),
            token_entropies=tuple(entropies[: len(row.token_ids)]),
        )
        for row, logp_sum, entropy_sum, logps, entropies in scores
    ]


def _blocks(n_rows: int, n_positions: int, n_words: int, *, n_logps: int) -> Iterator[tuple[slice, slice]]:
    """Yield (rows, positions) of at most ``n_logps`` numbers: complete rows, or part of one row.

    >>> list(_blocks(3, 2, 10, n_logps=40))
    [(slice(0, 2, None), slice(0, 2, None)), (slice(2, 3, None), slice(0, 2, None))]
    >>> list(_blocks(1, 3, 10, n_logps=20))
    [(slice(0, 1, None), slice(0, 2, None)), (slice(0, 1, None), slice(2, 3, None))]
    """
    positions = max(1, min(n_positions, n_logps // n_words))
    rows = max(1, n_logps // (n_positions * n_words))
    for row in range(0, n_rows, rows):
        for position in range(0, n_positions, positions):
            yield slice(row, min(row + rows, n_rows)), slice(position, min(position + positions, n_positions))


def _response_logits(
    loaded: LoadedModel,
    rows: Sequence[EncodedResponse],
    ids_BL: Int[Tensor, "row token"],
    mask_BL: Bool[Tensor, "row token"],
    prompt_width: int,
    positions_per_chunk: int,
) -> Iterator[tuple[int, Float[Tensor, "row token vocabulary"]]]:
    """Yield chunks of logits as (first column, logits).

    They predict that column and the following ones. If all logits fit and no prompt is shared, this is one forward
    pass. Otherwise it is one pass over the prompts and one per chunk. A chunk continues from the cache of the previous
    one, or recomputes all if the model cannot continue.
    """
    model: Any = loaded.model
    accepted = inspect.signature(innermost(model).forward).parameters
    width = ids_BL.shape[1]
    rules = find_reading_rules(model)
    keeps_cache = width - prompt_width > positions_per_chunk and rules.continues
    starts = adapter_starts(model, ids_BL[:, :prompt_width])
    position_BL = positions(mask_BL)
    cache: Any = _shared_prompts(model, rows, ids_BL, mask_BL, prompt_width)
    # the last prompt token predicts the first response token, so it is computed with the response
    n_cached = 0 if cache is None else prompt_width - 1
    for first in range(prompt_width, width, positions_per_chunk):
        last = min(first + positions_per_chunk, width)
        arguments: dict[str, Any] = {
            "input_ids": ids_BL[:, n_cached : last - 1],
            "attention_mask": mask_BL[:, : last - 1].long(),
            "use_cache": cache is not None or keeps_cache,
        }
        if cache is not None:
            arguments["past_key_values"] = cache
        if starts is not None:
            arguments["alora_offsets"] = [
                None if start is None else start + last - 1 - prompt_width for start in starts
            ]
        if "position_ids" in accepted and rules.pads:
            arguments["position_ids"] = position_BL[:, n_cached : last - 1]
        if "logits_to_keep" in accepted:
            arguments["logits_to_keep"] = last - first
        output = model(**arguments)
        cache = None if last == width else getattr(output, "past_key_values", None)
        if not can_continue(model, cache):
            cache = None
        n_cached = 0 if cache is None else last - 1
        yield first, output.logits[:, -(last - first) :]


def _shared_prompts(
    model: Any,
    rows: Sequence[EncodedResponse],
    ids_BL: Int[Tensor, "row token"],
    mask_BL: Bool[Tensor, "row token"],
    prompt_width: int,
) -> Any:
    """Return the KV caches of the prompts without their last token, by row.

    None if sharing saves nothing.
    """
    numbers: dict[tuple[int, ...], int] = {}
    prompt_of_row = [numbers.setdefault(row.prompt_ids, len(numbers)) for row in rows]
    if len(numbers) == len(rows) or prompt_width < 2 or not find_reading_rules(model).shares_prompts:
        return None
    device = ids_BL.device
    first_B = torch.tensor([prompt_of_row.index(number) for number in range(len(numbers))], device=device)
    ids_PL, mask_PL = ids_BL[first_B, : prompt_width - 1], mask_BL[first_B, : prompt_width - 1]
    return read_prompts(model, ids_PL, mask_PL, torch.tensor(prompt_of_row, device=device))
