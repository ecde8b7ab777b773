"""Three layouts of prompts and responses in a forward pass, with the same hidden states, to rounding.

- ``rows``: every response behind a copy of its prompt, padded to a rectangle. For any model.
- ``tree``: the responses of a prompt behind one copy of it, as a tree: what two of them begin with is computed once.
  A token sees its ancestors alone. Attention costs the square of the tree, so this is for short ones.
- ``packed``: rows end to end without padding; transformers finds the borders in the position ids. Attention costs the
  square of them all, so this is for few rows of very different lengths.

``tree`` and ``packed`` are for models whose every layer attends to all that came before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from oversharp.trainers.batch import RolloutBatch, positions

if TYPE_CHECKING:
    from transformers import PretrainedConfig

Layout = Literal["rows", "tree", "packed"]


@dataclass(frozen=True, kw_only=True)
class PassInput:
    """Rows of one pass, cut to the width that they need: their prompts once each, and which one is whose.

    ``ids_PL`` is padded on the left, ``response_RT`` on the right.
    """

    ids_PL: Int[Tensor, "prompt length"]
    mask_PL: Bool[Tensor, "prompt length"]
    prompt_R: Int[Tensor, " row"]
    response_RT: Int[Tensor, "row token"]
    mask_RT: Bool[Tensor, "row token"]


def pass_input(rollouts: RolloutBatch, row_R: Int[Tensor, " row"]) -> PassInput:
    """The rows ``row_R`` of the batch."""
    prompt_P, prompt_R = (row_R // rollouts.group_size).unique(return_inverse=True)
    mask_PL, mask_RT = rollouts.prompt_mask_PL[prompt_P], rollouts.response_mask_BT[row_R]
    widths = torch.stack([mask_PL.sum(dim=1).max(), mask_RT.sum(dim=1).max()])
    length, width = map(int, widths.tolist())
    return PassInput(
        ids_PL=rollouts.prompt_ids_PL[prompt_P][:, -length:],
        mask_PL=mask_PL[:, -length:],
        prompt_R=prompt_R,
        response_RT=rollouts.response_ids_BT[row_R, :width],
        mask_RT=mask_RT[:, :width],
    )


def hidden_states(
    trunk: Callable[..., Any], config: PretrainedConfig, given: PassInput, layout: Layout
) -> Float[Tensor, "position width"]:
    """The hidden state that predicts each response token, in the order of ``given.mask_RT.nonzero()``."""
    if layout == "tree":
        return _tree(trunk, config, given)
    if layout == "packed":
        return _packed_states(trunk, given)
    return _rows(trunk, given)


def rows_input(given: PassInput) -> dict[str, Any]:
    """The arguments of the layout ``rows``: ids, and mask and positions where padding calls for them."""
    mask_RL = given.mask_PL[given.prompt_R]
    # nothing follows the last token, so it is never an input
    ids_RS = torch.cat([given.ids_PL[given.prompt_R], given.response_RT[:, :-1]], dim=1)
    arguments: dict[str, Any] = {"input_ids": ids_RS, "use_cache": False}
    # padding on the right lies behind every scored token; causality hides it, only the left needs a mask
    if not bool(mask_RL.all()):
        mask_RS = torch.cat([mask_RL, torch.ones_like(given.mask_RT[:, :-1])], dim=1)
        arguments |= {"attention_mask": mask_RS.long(), "position_ids": positions(mask_RS)}
    return arguments


def _rows(trunk: Callable[..., Any], given: PassInput) -> Tensor:
    hidden_RSD = trunk(**rows_input(given))[0]
    selected_ND: Tensor = hidden_RSD[:, given.ids_PL.shape[1] - 1 :][given.mask_RT]
    return selected_ND


def _packed_states(trunk: Callable[..., Any], given: PassInput) -> Tensor:
    ids_RS = torch.cat([given.ids_PL[given.prompt_R], given.response_RT], dim=1)
    mask_RS = torch.cat([given.mask_PL[given.prompt_R], given.mask_RT], dim=1)
    # without a mask the library takes a new row to begin where positions start again
    hidden_1ND = trunk(input_ids=ids_RS[mask_RS][None], position_ids=positions(mask_RS)[mask_RS][None], use_cache=False)
    is_response_N = torch.cat([torch.zeros_like(given.mask_PL[given.prompt_R]), given.mask_RT], dim=1)[mask_RS]
    selected_ND: Tensor = hidden_1ND[0][
        0, is_response_N.roll(-1)
    ]  # a row starts with its prompt, so this wraps to False
    return selected_ND


def _tree(trunk: Callable[..., Any], config: PretrainedConfig, given: PassInput) -> Tensor:
    tree = prompt_trees(given)
    attend_P1SS = tree.attend_PSS[:, None]
    if config._attn_implementation != "sdpa":
        # elsewhere a ready-made mask is a number that is added to the scores
        seen_P1SS, attend_P1SS = attend_P1SS, torch.zeros(attend_P1SS.shape, device=attend_P1SS.device)
        attend_P1SS.masked_fill_(~seen_P1SS, torch.finfo(torch.float32).min)
    hidden_PSD = trunk(
        input_ids=tree.ids_PS, attention_mask=attend_P1SS, position_ids=tree.position_PS, use_cache=False
    )[0]
    prompt_RT = given.prompt_R[:, None].expand_as(tree.slot_RT)
    selected_ND: Tensor = hidden_PSD[prompt_RT[given.mask_RT], tree.slot_RT[given.mask_RT]]
    return selected_ND


@dataclass(frozen=True, kw_only=True)
class PromptTrees:
    """The responses of each prompt as a tree behind it: slot s of prompt p holds one token.

    ``attend_PSS`` tells which slots a slot sees: itself and its ancestors. ``slot_RT`` is the slot whose state
    predicts response token t of row r, meaningless behind the response.
    """

    ids_PS: Int[Tensor, "prompt slot"]
    position_PS: Int[Tensor, "prompt slot"]
    attend_PSS: Bool[Tensor, "prompt slot slot"]
    slot_RT: Int[Tensor, "row token"]


def prompt_trees(given: PassInput) -> PromptTrees:
    """Merge what responses of one prompt begin with.

    >>> given = PassInput(
    ...     ids_PL=torch.tensor([[7, 8]]), mask_PL=torch.ones(1, 2, dtype=torch.bool), prompt_R=torch.tensor([0, 0]),
    ...     response_RT=torch.tensor([[3, 4, 1], [3, 5, 1]]), mask_RT=torch.ones(2, 3, dtype=torch.bool))
    >>> trees = prompt_trees(given)
    >>> trees.ids_PS.tolist(), trees.position_PS.tolist(), trees.slot_RT.tolist()
    ([[7, 8, 3, 4, 5]], [[0, 1, 2, 3, 3]], [[1, 2, 3], [1, 2, 4]])
    """
    device = given.ids_PL.device
    n_prompts, length = given.ids_PL.shape
    n_rows, width = given.response_RT.shape
    vocabulary = int(given.response_RT.max()) + 1
    n_slots = length + n_rows * width  # more than there can be
    state_R = torch.full((n_rows,), length - 1, device=device)
    next_P = torch.full((n_prompts,), length, device=device)
    slot_RT = state_R[:, None].repeat(1, width)
    levels = []
    for t in range(width - 1):
        row_A = given.mask_RT[:, t + 1].nonzero()[:, 0]  # the rows that go on after this token
        key_A = (given.prompt_R[row_A] * n_slots + state_R[row_A]) * vocabulary + given.response_RT[row_A, t]
        key_N, node_A = key_A.unique(return_inverse=True)  # sorted, hence prompt by prompt
        parent_N, token_N = key_N // vocabulary % n_slots, key_N % vocabulary
        prompt_N = key_N // (n_slots * vocabulary)
        n_new_P = torch.zeros_like(next_P).index_add_(0, prompt_N, torch.ones_like(prompt_N))
        rank_N = torch.arange(len(key_N), device=device) - (n_new_P.cumsum(0) - n_new_P)[prompt_N]
        slot_N = next_P[prompt_N] + rank_N
        next_P = next_P + n_new_P
        state_R[row_A] = slot_N[node_A]
        slot_RT[:, t + 1] = state_R
        levels.append((prompt_N, slot_N, parent_N, token_N))

    size = int(next_P.max())
    ids_PS = given.ids_PL.new_zeros(n_prompts, size)
    ids_PS[:, :length] = given.ids_PL
    position_PS = torch.zeros_like(ids_PS)
    position_PS[:, :length] = positions(given.mask_PL)
    # a slot that is filled with nothing sees itself: softmax over nothing is NaN
    attend_PSS = torch.eye(size, dtype=torch.bool, device=device).repeat(n_prompts, 1, 1)
    causal_LL = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    attend_PSS[:, :length, :length] |= causal_LL & given.mask_PL[:, None, :]
    for prompt_N, slot_N, parent_N, token_N in levels:
        ids_PS[prompt_N, slot_N] = token_N
        position_PS[prompt_N, slot_N] = position_PS[prompt_N, parent_N] + 1
        attend_PSS[prompt_N, slot_N] |= attend_PSS[prompt_N, parent_N]
    return PromptTrees(ids_PS=ids_PS, position_PS=position_PS, attend_PSS=attend_PSS, slot_RT=slot_RT)
