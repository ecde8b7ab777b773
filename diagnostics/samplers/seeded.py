"""Draws of consecutive samples of one problem, with a seed that depends only on the samples' identity.

vLLM generates response ``i`` of a request with the request's seed plus ``i``. So samples are the same from an engine of
this process and from a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from oversharp.diagnostics.models.tokens import TokenLimits, encode_prompt, require_fit
from oversharp.diagnostics.records.types import Checkpoint, Problem, SamplingSettings
from oversharp.diagnostics.samplers.contract import SampleRequest, row_key

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: Largest number of responses per request. They return together, so it limits the memory, and the work that is lost if
#: the process is killed.
ROWS_PER_REQUEST = 64


class PromptEncoder(TokenLimits, Protocol):
    """Tokenizer and limits of a model, which need not be loaded."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Tokenizer of the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class PlannedDraw:
    """Responses ``first`` to ``first + n - 1`` of one problem, or its greedy response, which has no seed.

    ``prompt_ids`` is empty if there was no encoder.
    """

    problem: Problem
    problem_id: str
    first: int
    n: int
    greedy: bool
    prompt_ids: tuple[int, ...]
    seed: int | None


def plan_draws(
    encoder: PromptEncoder | None,
    checkpoint: Checkpoint,
    requests: Sequence[SampleRequest],
    settings: SamplingSettings,
    *,
    most: int = ROWS_PER_REQUEST,
) -> list[PlannedDraw]:
    """Return the draws that give the requested responses, at most ``most`` responses each.

    Raises ``SamplerError`` if a prompt cannot be encoded, or does not fit into the context with ``max_tokens``.
    """
    planned = []
    for request in requests:
        if not request.sample_indices and not request.greedy:
            continue
        problem_id = request.problem.problem_id
        prompt_ids: tuple[int, ...] = ()
        if encoder is not None:
            prompt_ids = tuple(encode_prompt(encoder.tokenizer, request.problem, settings))
            require_fit(encoder, request.problem, prompt_ids, n_response=settings.max_tokens)
        # below 2^62, so that seed + index fits in 64 bits
        seed = row_key(settings.seed, checkpoint.checkpoint_id, problem_id) % (1 << 62)
        draws = [(first, n, False) for first, n in contiguous(request.sample_indices, most=most)]
        draws += [(0, 1, True)] if request.greedy else []
        planned += [
            PlannedDraw(
                problem=request.problem,
                problem_id=problem_id,
                first=first,
                n=n,
                greedy=greedy,
                prompt_ids=prompt_ids,
                seed=None if greedy else seed + first,
            )
            for first, n, greedy in draws
        ]
    return planned


def contiguous(indices: Iterable[int], *, most: int = ROWS_PER_REQUEST) -> list[tuple[int, int]]:
    """Return ascending runs (first, length) of consecutive indices that cover ``indices``.

    A run has at most ``most`` indices. A run that starts at ``first`` gets the seed ``base + first``. So every index
    gets the seed ``base + index``, however the indices are split into runs.

    >>> contiguous([5, 0, 1, 2, 7], most=2)
    [(0, 2), (2, 1), (5, 1), (7, 1)]
    """
    runs: list[tuple[int, int]] = []
    for index in sorted(set(indices)):
        first, length = runs[-1] if runs else (index, most)
        if first + length == index and length < most:
            runs[-1] = (first, length + 1)
        else:
            runs.append((index, 1))
    return runs
