"""Three layouts of prompts and responses in a forward pass. Their hidden states differ only by rounding.

- ``rows``: every response follows a copy of its prompt, and rows are padded to equal length. Works for any model.
- ``tree``: all responses of a prompt follow one copy of it, as a prefix tree. Shared prefixes are computed once, and a
  token attends only to its ancestors. The cost of attention is quadratic in the size of the tree, so this layout suits
  short responses.
- ``packed``: all rows are concatenated without padding. transformers finds their boundaries in the position ids. The
  cost of attention is quadratic in the total length, so this layout suits few rows of very different lengths.

``tree`` and ``packed`` require full attention in every layer.
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
    """Input of one forward pass, with as little padding as possible.

    It has each prompt once (``ids_PL``, padded on the left), and for each row its response (``response_RT``, padded on
    the right) and the index of its prompt.
    """

    ids_PL: Int[Tensor, "prompt length"]
    mask_PL: Bool[Tensor, "prompt length"]
    prompt_R: Int[Tensor, " row"]
    response_RT: Int[Tensor, "row token"]
    mask_RT: Bool[Tensor, "row token"]


def pass_input(rollouts: RolloutBatch, row_R: Int[Tensor, " row"]) -> PassInput:
    """Return the rows ``row_R`` of the batch as input of a forward pass."""
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
    """Return the hidden state that predicts each response token, in the order of ``given.mask_RT.nonzero()``."""
    if layout == "tree":
        return _run_tree(trunk, config, given)
    if layout == "packed":
        return _run_packed(trunk, given)
    return _run_rows(trunk, given)


def rows_input(given: PassInput) -> dict[str, Any]:
    """Return the model's arguments for the layout ``rows``: token ids; mask and positions only if needed."""
    mask_RL = given.mask_PL[given.prompt_R]
    # the last token of a response predicts no token, so it is not an input
    ids_RS = torch.cat([given.ids_PL[given.prompt_R], given.response_RT[:, :-1]], dim=1)
    arguments: dict[str, Any] = {"input_ids": ids_RS, "use_cache": False}
    # causal attention ignores padding on the right, so only padding on the left needs a mask
    if not bool(mask_RL.all()):
        mask_RS = torch.cat([mask_RL, torch.ones_like(given.mask_RT[:, :-1])], dim=1)
        arguments |= {"attention_mask": mask_RS.long(), "position_ids": positions(mask_RS)}
    return arguments


def _run_rows(trunk: Callable[..., Any], given: PassInput) -> Tensor:
    hidden_RSD = trunk(**rows_input(given))[0]
    selected_ND: Tensor = hidden_RSD[:, given.ids_PL.shape[1] - 1 :][given.mask_RT]
    return selected_ND


def _run_packed(trunk: Callable[..., Any], given: PassInput) -> Tensor:
    ids_RS = torch.cat([given.ids_PL[given.prompt_R], given.response_RT], dim=1)
    mask_RS = torch.cat([given.mask_PL[given.prompt_R], given.mask_RT], dim=1)
    # without a mask, transformers treats a restart of the positions as the start of a new row
    hidden_1ND = trunk(input_ids=ids_RS[mask_RS][None], position_ids=positions(mask_RS)[mask_RS][None], use_cache=False)
    is_response_N = torch.cat([torch.zeros_like(given.mask_PL[given.prompt_R]), given.mask_RT], dim=1)[mask_RS]
    # roll moves the first entry to the end, which is correct: it is False, because a row starts with its prompt
    selected_ND: Tensor = hidden_1ND[0][0, is_response_N.roll(-1)]
    return selected_ND


def _run_tree(trunk: Callable[..., Any], config: PretrainedConfig, given: PassInput) -> Tensor:
    tree = prompt_trees(given)
    attend_P1SS = tree.attend_PSS[:, None]
    if config._attn_implementation != "sdpa":
        # attention implementations other than sdpa expect a mask that is added to the scores
        visible_P1SS, attend_P1SS = attend_P1SS, torch.zeros(attend_P1SS.shape, device=attend_P1SS.device)
        attend_P1SS.masked_fill_(~visible_P1SS, torch.finfo(torch.float32).min)
    hidden_PSD = trunk(
        input_ids=tree.ids_PS, attention_mask=attend_P1SS, position_ids=tree.position_PS, use_cache=False
    )[0]
    prompt_RT = given.prompt_R[:, None].expand_as(tree.slot_RT)
    selected_ND: Tensor = hidden_PSD[prompt_RT[given.mask_RT], tree.slot_RT[given.mask_RT]]
    return selected_ND


@dataclass(frozen=True, kw_only=True)
class PromptTrees:
    """Prefix tree of each prompt with its responses. A slot is a node of the tree and has one token.

    ``attend_PSS`` is whether a slot attends to another: to itself and its ancestors. ``slot_RT`` is the slot whose
    hidden state predicts token t of the response in row r. It is undefined after the response.
    """

    ids_PS: Int[Tensor, "prompt slot"]
    position_PS: Int[Tensor, "prompt slot"]
    attend_PSS: Bool[Tensor, "prompt slot slot"]
    slot_RT: Int[Tensor, "row token"]


def prompt_trees(given: PassInput) -> PromptTrees:
    """Build the prefix tree of each prompt with its responses.

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
    n_slots = length + n_rows * width  # upper bound of the number of slots
    state_R = torch.full((n_rows,), length - 1, device=device)
    next_P = torch.full((n_prompts,), length, device=device)
    slot_RT = state_R[:, None].repeat(1, width)
    levels = []
    for t in range(width - 1):
        row_A = given.mask_RT[:, t + 1].nonzero()[:, 0]  # rows with a token at t + 1
        key_A = (given.prompt_R[row_A] * n_slots + state_R[row_A]) * vocabulary + given.response_RT[row_A, t]
        key_N, node_A = key_A.unique(return_inverse=True)  # sorted, so grouped by prompt
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
    # unused slots must attend to themselves, because a softmax over no scores is NaN
    attend_PSS = torch.eye(size, dtype=torch.bool, device=device).repeat(n_prompts, 1, 1)
    causal_LL = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    attend_PSS[:, :length, :length] |= causal_LL & given.mask_PL[:, None, :]
    for prompt_N, slot_N, parent_N, token_N in levels:
        ids_PS[prompt_N, slot_N] = token_N
        position_PS[prompt_N, slot_N] = position_PS[prompt_N, parent_N] + 1
        attend_PSS[prompt_N, slot_N] |= attend_PSS[prompt_N, parent_N]
    return PromptTrees(ids_PS=ids_PS, position_PS=position_PS, attend_PSS=attend_PSS, slot_RT=slot_RT)
