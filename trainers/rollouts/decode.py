"""The decoder: responses to prompts, token by token, for any causal language model of transformers.

The noise of a rollout is fixed before decoding starts, one uniform number per row and token, so what a row becomes
does not depend on the rows beside it. Rows that have said the same so far share one hidden state, which is computed
once: the group of a prompt starts as one row, and a policy that sharpens repeats itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from oversharp.trainers.batch import RolloutBatch, positions
from oversharp.trainers.model.kv_cache import new_cache

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Unused rows are dropped once they make up a tenth of the batch; below that, copying the cache costs more.
COMPACT_BELOW = 0.9
#: Logits this far below the largest stand for impossible tokens: their probability is 0 in every precision.
_LEAST = -1e4


@dataclass(frozen=True, kw_only=True)
class DecodingLaw:
    """The law of the next token: softmax((f_θ − μ f_φ) / T), with the memory network's logits f_φ.

    Temperature 0 stands for the likeliest token, μ = 0 for plain sampling. Source: arXiv 2601.15609, 3.2.
    """

    temperature: float
    mu: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TokenDraw:
    """One token per row, with log-probabilities and entropies in nats.

    ``behaviour_logp_R`` is under the law it was drawn from, ``logp_R`` and ``entropy_R`` are the policy's own.
    """

    token_R: Int[Tensor, " row"]
    behaviour_logp_R: Float[Tensor, " row"]
    logp_R: Float[Tensor, " row"]
    entropy_R: Float[Tensor, " row"]


class Reader(Protocol):
    """A network that has read some prefixes, each in a slot of its own.

    ``shares_prefixes``: rows that have said the same may share a slot; else every row has its own.
    """

    shares_prefixes: bool

    def read(
        self,
        prompt_ids_PL: Int[Tensor, "prompt length"],
        prompt_mask_PL: Bool[Tensor, "prompt length"],
        *,
        rows: int,
        max_tokens: int,
    ) -> Float[Tensor, "prompt vocabulary"]:
        """Begin with the prompts; the logits behind each. Room is made for ``rows`` slots and ``max_tokens`` more."""

    def select(self, parent_S: Int[Tensor, " slot"]) -> None:
        """Go on with these slots; one that is named twice becomes two."""

    def step(self, token_S: Int[Tensor, " slot"]) -> Float[Tensor, "slot vocabulary"]:
        """Read one more token in every slot; the logits behind it, valid until the next step."""


class GrowingReader:
    """Reads with a cache that grows by a token at a time."""

    shares_prefixes = True

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    def read(
        self,
        prompt_ids_PL: Int[Tensor, "prompt length"],
        prompt_mask_PL: Bool[Tensor, "prompt length"],
        *,
        rows: int,
        max_tokens: int,
    ) -> Float[Tensor, "prompt vocabulary"]:
        """See ``Reader.read``."""
        # without padding the model's own causal mask and positions are right, and cheaper
        self._padded = not bool(prompt_mask_PL.all())
        self._length = prompt_ids_PL.shape[1]
        self._cache = new_cache(self._model, self._length + max_tokens)
        self._mask_SL = torch.nn.functional.pad(prompt_mask_PL, (0, max_tokens), value=True)
        position_PL = positions(prompt_mask_PL)
        self._position_S1 = position_PL[:, -1:]
        return self._logits(prompt_ids_PL, position_PL)

    def select(self, parent_S: Int[Tensor, " slot"]) -> None:
        """See ``Reader.select``."""
        self._cache.batch_select_indices(parent_S)
        if self._padded:
            self._mask_SL, self._position_S1 = self._mask_SL[parent_S], self._position_S1[parent_S]

    def step(self, token_S: Int[Tensor, " slot"]) -> Float[Tensor, "slot vocabulary"]:
        """See ``Reader.step``."""
        self._length += 1
        self._position_S1 = self._position_S1 + 1
        return self._logits(token_S[:, None], self._position_S1)

    def _logits(
        self, ids_SN: Int[Tensor, "slot new"], position_SN: Int[Tensor, "slot new"]
    ) -> Float[Tensor, "slot vocabulary"]:
        output = self._model(
            input_ids=ids_SN,
            attention_mask=self._mask_SL[:, : self._length].long() if self._padded else None,
            position_ids=position_SN if self._padded else None,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()


def uniform_noise(seed: int, *, rows: int, max_tokens: int) -> Float[Tensor, "row token"]:
    """The noise of one step, in [0, 1). Drawn on the CPU, so that every device gets the same."""
    return torch.rand(rows, max_tokens, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def generate(
    readers: Sequence[Reader],
    prompt_ids_PL: Int[Tensor, "prompt length"],
    prompt_mask_PL: Bool[Tensor, "prompt length"],
    uniform_BT: Float[Tensor, "row token"],
    *,
    law: DecodingLaw,
    end_ids: Sequence[int],
    pad_id: int,
) -> RolloutBatch:
    """Sample ``rows / prompts`` responses per prompt, each at most ``uniform_BT.shape[1]`` tokens long.

    ``readers``: the policy's, and the memory network's if the law has one; on the prompts' device.
    """
    device = prompt_ids_PL.device
    uniform_BT = uniform_BT.to(device)
    n_rows, max_tokens = uniform_BT.shape
    n_prompts = len(prompt_ids_PL)
    response_ids_BT = torch.full((n_rows, max_tokens), pad_id, device=device)
    behaviour_logp_BT, logp_BT, entropy_BT = torch.zeros((3, n_rows, max_tokens), device=device).unbind()
    length_B = torch.full((n_rows,), max_tokens, device=device)
    truncated_B = torch.ones(n_rows, dtype=torch.bool, device=device)

    logits = [reader.read(prompt_ids_PL, prompt_mask_PL, rows=n_rows, max_tokens=max_tokens) for reader in readers]
    ends_V = torch.zeros(logits[0].shape[1], dtype=torch.bool, device=device)
    ends_V[list(end_ids)] = True
    slots = Slots(n_rows=n_rows, n_vocabulary=logits[0].shape[1], shared=readers[0].shares_prefixes)
    row_R = torch.arange(n_rows, device=device)  # the rows that go on, and the slot that each one's prefix lies in
    slot_R = torch.arange(n_prompts, device=device).repeat_interleave(n_rows // n_prompts)
    for t in range(max_tokens):
        draw = draw_tokens(logits, law, uniform_BT[row_R, t], slot_R)
        response_ids_BT[row_R, t] = draw.token_R
        behaviour_logp_BT[row_R, t] = draw.behaviour_logp_R
        logp_BT[row_R, t] = draw.logp_R
        entropy_BT[row_R, t] = draw.entropy_R

        ended_R = ends_V[draw.token_R]
        length_B[row_R[ended_R]] = t + 1
        truncated_B[row_R[ended_R]] = False
        row_R, slot_R, token_R = row_R[~ended_R], slot_R[~ended_R], draw.token_R[~ended_R]
        if len(row_R) == 0 or t + 1 == max_tokens:
            break
        parent_S, slot_R, token_S = slots.arrange(slot_R, token_R)
        if parent_S is not None:
            for reader in readers:
                reader.select(parent_S)
        logits = [reader.step(token_S) for reader in readers]

    return RolloutBatch(
        group_size=n_rows // n_prompts,
        prompt_ids_PL=prompt_ids_PL,
        prompt_mask_PL=prompt_mask_PL,
        response_ids_BT=response_ids_BT,
        response_mask_BT=torch.arange(max_tokens, device=device) < length_B[:, None],
        behaviour_logp_BT=behaviour_logp_BT,
        logp_sum_B=logp_BT.sum(dim=1),
        entropy_sum_B=entropy_BT.sum(dim=1),
        truncated_B=truncated_B,
    )


def draw_tokens(
    logits: Sequence[Float[Tensor, "slot vocabulary"]],
    law: DecodingLaw,
    uniform_R: Float[Tensor, " row"],
    slot_R: Int[Tensor, " row"],
) -> TokenDraw:
    """One token for each row behind the prefix in its slot, by inverting the cumulative distribution of the law.

    ``logits`` are the policy's and, where μ is not 0, the memory network's.

    >>> logits, uniform_R = torch.tensor([[0.25, 0.75]]).log(), torch.tensor([0.2, 0.3])
    >>> draw_tokens([logits], DecodingLaw(temperature=1.0), uniform_R, torch.tensor([0, 0])).token_R.tolist()
    [0, 1]
    """
    own_SV = _below_largest(logits[0])
    own_odds_SV = own_SV.exp()
    own_total_S = own_odds_SV.sum(dim=1)
    # log Z − E[logit]: no log-probability of any token but the drawn one is ever computed
    entropy_S = own_total_S.log() - (own_odds_SV * own_SV).sum(dim=1) / own_total_S
    if law.temperature == 0:
        scores_SV = logits[0] if law.mu == 0 else logits[0] - law.mu * logits[1]
        token_R = scores_SV.argmax(dim=1)[slot_R]
        behaviour_logp_R = torch.zeros_like(uniform_R)  # a law without a choice
    elif law.temperature == 1 and law.mu == 0:
        token_R = _invert(own_odds_SV, uniform_R, slot_R)
        behaviour_logp_R = own_SV[slot_R, token_R] - own_total_S.log()[slot_R]
    else:
        scores_SV = logits[0] if law.mu == 0 else logits[0] - law.mu * logits[1]
        scores_SV = _below_largest(scores_SV / law.temperature)
        odds_SV = scores_SV.exp()
        token_R = _invert(odds_SV, uniform_R, slot_R)
        behaviour_logp_R = scores_SV[slot_R, token_R] - odds_SV.sum(dim=1).log()[slot_R]
    return TokenDraw(
        token_R=token_R,
        behaviour_logp_R=behaviour_logp_R,
        logp_R=own_SV[slot_R, token_R] - own_total_S.log()[slot_R],
        entropy_R=entropy_S[slot_R],
    )


class Slots:
    """Says which prefixes lie in which slots, so that none is computed twice and few for nothing."""

    def __init__(self, *, n_rows: int, n_vocabulary: int, shared: bool) -> None:
        self._n_rows = n_rows
        self._n_vocabulary = n_vocabulary
        self._shared = shared
        self._width = 0

    def arrange(
        self, slot_R: Int[Tensor, " row"], token_R: Int[Tensor, " row"]
    ) -> tuple[Int[Tensor, " slot"] | None, Int[Tensor, " row"], Int[Tensor, " slot"]]:
        """Where rows go on that add ``token_R`` to what lies in ``slot_R``.

        Gives the slots to select, None where all stay as they are, then each row's slot and each slot's next token.
        Slots that no row lies in any more read token 0.
        """
        return self._arrange_shared(slot_R, token_R) if self._shared else self._arrange_own(slot_R, token_R)

    def _arrange_shared(
        self, slot_R: Int[Tensor, " row"], token_R: Int[Tensor, " row"]
    ) -> tuple[Int[Tensor, " slot"] | None, Int[Tensor, " row"], Int[Tensor, " slot"]]:
        distinct_S, place_R = (slot_R * self._n_vocabulary + token_R).unique(return_inverse=True)
        parent_S, token_S = distinct_S // self._n_vocabulary, distinct_S % self._n_vocabulary
        branched = bool((parent_S.diff() == 0).any())
        if not branched and len(parent_S) > COMPACT_BELOW * self._width and self._width:
            return None, slot_R, self._spread(parent_S, token_S)
        self._width = len(parent_S)
        return parent_S, place_R, token_S

    def _arrange_own(
        self, slot_R: Int[Tensor, " row"], token_R: Int[Tensor, " row"]
    ) -> tuple[Int[Tensor, " slot"] | None, Int[Tensor, " row"], Int[Tensor, " slot"]]:
        # numbers of slots come from one ladder, so that few shapes occur
        width = self._n_rows
        while width // 2 >= len(slot_R):
            width //= 2
        if width == self._width:
            return None, slot_R, self._spread(slot_R, token_R)
        self._width = width
        fill = torch.zeros(width - len(slot_R), dtype=slot_R.dtype, device=slot_R.device)
        row_R = torch.arange(len(slot_R), device=slot_R.device)
        return torch.cat([slot_R, fill]), row_R, torch.cat([token_R, fill])

    def _spread(self, slot_R: Int[Tensor, " used"], token_R: Int[Tensor, " used"]) -> Int[Tensor, " slot"]:
        token_S = torch.zeros(self._width, dtype=token_R.dtype, device=token_R.device)
        token_S[slot_R] = token_R
        return token_S


def _below_largest(logits_SV: Float[Tensor, "slot vocabulary"]) -> Float[Tensor, "slot vocabulary"]:
    return (logits_SV - logits_SV.amax(dim=1, keepdim=True)).clamp_(min=_LEAST)


def _invert(
    odds_SV: Float[Tensor, "slot vocabulary"], uniform_R: Float[Tensor, " row"], slot_R: Int[Tensor, " row"]
) -> Int[Tensor, " row"]:
    cumulative_RV = odds_SV.cumsum(dim=1)[slot_R]
    threshold_R1 = uniform_R[:, None] * cumulative_RV[:, -1:]
    token_R = torch.searchsorted(cumulative_RV, threshold_R1, right=True)[:, 0]
    return token_R.clamp(max=odds_SV.shape[1] - 1)
