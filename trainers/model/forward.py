"""Compute log-probabilities and entropies of response tokens, in forward passes planned for minimal cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from oversharp.diagnostics.models.cached_passes import innermost
from oversharp.trainers.batch import RolloutBatch
from oversharp.trainers.model.head import chunked_logps
from oversharp.trainers.model.layouts import Layout, PassInput, hidden_states, pass_input, rows_input
from oversharp.trainers.model.network import Network

#: Device → launch overhead of a forward pass, as the number of tokens that take the same time. The value for a CPU is
#: the overhead of calling the layers at MEASURED_WIDTH; wider models take longer per token, so theirs is lower. The
#: value for a GPU is larger because of kernel launches.
PASS_TOKENS = {"cpu": 256, "cuda": 4096}
MEASURED_WIDTH = 96
#: Device → size of one activation (tokens × width) that is large enough to use the device fully. On a GPU, larger
#: passes are split if that reduces padding. On a CPU they are always split, because they do not fit its cache.
BUSY_NUMBERS = {"cpu": 200_000, "cuda": 65536 * 1024}
#: On a GPU, a response starts a new pass if it is shorter than this share of the longest response of the pass.
_MUCH_SHORTER = 0.75


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Lengths in tokens of responses and their prompts, and the prompt index of each response.

    ``unshared`` is the number of input tokens of a response after the prefix that it shares with the previous response.
    If responses are sorted, its sum is the number of nodes of their prefix tree. ``width`` is the hidden size of the
    model.
    """

    response: Sequence[int]
    unshared: Sequence[int]
    prompt: Sequence[int]
    prompt_index: Sequence[int]
    width: int

    def __len__(self) -> int:
        return len(self.response)


@dataclass(frozen=True, kw_only=True)
class PlannedPass:
    """Responses of one forward pass (indices in ``Lengths``), its layout, and its cost in tokens."""

    rows: tuple[int, ...]
    layout: Layout
    cost: float


def plan_passes(
    lengths: Lengths, *, most_rows: int | None, layouts: Sequence[Layout], device: str = "cpu"
) -> list[PlannedPass]:
    """Split the responses into forward passes of at most ``most_rows`` responses.

    Responses are ordered by length, which minimizes padding, or by prompt, so that they can share prompts. The cheaper
    order is used.

    >>> index = [0, 0, 0, 0, 1, 1, 1, 1]
    >>> lengths = Lengths(response=[6] * 8, unshared=[5] * 8, prompt=[6] * 8, prompt_index=index, width=96)
    >>> [(plan.rows, plan.layout) for plan in plan_passes(lengths, most_rows=None, layouts=("rows", "tree"))]
    [((0, 1, 2, 3, 4, 5, 6, 7), 'tree')]
    """
    longest = Counter[int]()
    for index, tokens in zip(lengths.prompt_index, lengths.response, strict=True):
        longest[index] = max(longest[index], tokens)
    by_prompt = sorted(
        range(len(lengths)),
        key=lambda row: (-longest[lengths.prompt_index[row]], lengths.prompt_index[row], -lengths.response[row]),
    )
    by_length = sorted(range(len(lengths)), key=lambda row: (-lengths.response[row], lengths.prompt_index[row]))
    plans = [
        [
            _cheapest(rows, lengths, layouts, device)
            for rows in _group_rows(order, lengths, most_rows, device, whole_prompts)
        ]
        for order, whole_prompts in ((by_prompt, True), (by_length, False))
    ]
    return min(plans, key=lambda plan: sum(planned_pass.cost for planned_pass in plan))


def pass_tokens(width: int, device: str) -> float:
    """Return the launch overhead of a forward pass, as a number of tokens of a model of this width.

    >>> pass_tokens(96, "cpu"), pass_tokens(384, "cpu")
    (256.0, 16.0)
    """
    return PASS_TOKENS[device] * (min(1.0, (MEASURED_WIDTH / width) ** 2) if device == "cpu" else 1.0)


def _group_rows(
    order: Sequence[int], lengths: Lengths, most_rows: int | None, device: str, whole_prompts: bool
) -> Iterator[tuple[int, ...]]:
    """Yield the rows of each pass.

    With ``whole_prompts``, rows are in order of the prompts, and a prompt is split only because of ``most_rows``.
    """
    rows: list[int] = []
    tokens, busy = 0, BUSY_NUMBERS[device] / lengths.width
    for row in order:
        if rows:
            same_prompt = lengths.prompt_index[row] == lengths.prompt_index[rows[-1]]
            much_shorter = lengths.response[row] < _MUCH_SHORTER * lengths.response[rows[0]]
            may_split = not (whole_prompts and same_prompt) if device == "cpu" else much_shorter
            if len(rows) == most_rows or (may_split and tokens >= busy):
                yield tuple(rows)
                rows, tokens = [], 0
        new_prompt = not rows or lengths.prompt_index[row] != lengths.prompt_index[rows[-1]]
        rows.append(row)
        tokens += lengths.unshared[row] if whole_prompts else lengths.response[row]
        tokens += lengths.prompt[row] if new_prompt or not whole_prompts else 0
    if rows:
        yield tuple(rows)


def _cheapest(rows: tuple[int, ...], lengths: Lengths, layouts: Sequence[Layout], device: str) -> PlannedPass:
    plans = [
        PlannedPass(rows=rows, layout=layout, cost=cost_tokens(rows, lengths, layout, device)) for layout in layouts
    ]
    return min(plans, key=lambda plan: plan.cost)


def cost_tokens(rows: Sequence[int], lengths: Lengths, layout: Layout, device: str = "cpu") -> float:
    """Return the cost of a forward pass. The unit is the cost of one token in the matrix products of all layers.

    Each pair of tokens in attention costs 1 / (4 width). The number of operations is 1 / (6 width), but a model of
    width 384 took 50 % more time on a CPU.

    >>> lengths = Lengths(response=[4, 4], unshared=[3, 2], prompt=[10, 10], prompt_index=[0, 0], width=96)
    >>> cost_tokens((0, 1), lengths, "rows"), cost_tokens((0, 1), lengths, "tree")
    (282.88..., 271.58...)
    """
    width = max(lengths.response[row] for row in rows)
    length = max(lengths.prompt[row] for row in rows)
    inputs = Counter[int]()
    for row in rows:
        inputs[lengths.prompt_index[row]] += lengths.unshared[row]
    n_rows, n_prompts, overhead = len(rows), len(inputs), pass_tokens(lengths.width, device)
    if layout == "tree":
        slots = length + max(inputs.values())
        tokens, pairs = n_prompts * slots, n_prompts * slots**2
    elif layout == "packed":
        tokens = sum(lengths.prompt[row] + lengths.response[row] for row in rows)
        pairs = tokens**2
    else:
        tokens, pairs = n_rows * (length + width - 1), n_rows * (length + width - 1) ** 2
    return overhead + tokens + pairs / (4 * lengths.width)


@dataclass(frozen=True, kw_only=True)
class ForwardSettings:
    """Settings of forward and backward passes.

    ``temperature`` divides the logits, as in sampling. ``micro_batch`` is the number of responses per pass; None: all.
    ``autocast`` is the data type of matrix products; None: that of the weights. The last two change the loss only by
    rounding.
    """

    temperature: float
    micro_batch: int | None = None
    autocast: torch.dtype | None = None


def split_passes(
    network: Network, rollouts: RolloutBatch, row_U: Int[Tensor, " used"], settings: ForwardSettings
) -> Iterator[tuple[Int[Tensor, " position"], Layout]]:
    """Yield the forward passes for the rows ``row_U``: indices into ``row_U``, and the layout."""
    if len(row_U) == 0:
        return
    prompt_U = row_U // rollouts.group_size
    n_tokens_U = rollouts.n_tokens_B[row_U]
    n_prompt_U = rollouts.prompt_mask_PL.sum(dim=1)[prompt_U]
    # stack the tensors, so that the host waits for the device once instead of four times
    counts = torch.stack([n_tokens_U, _count_unshared(rollouts, row_U), n_prompt_U, prompt_U]).tolist()
    lengths = Lengths(
        response=counts[0],
        unshared=counts[1],
        prompt=counts[2],
        prompt_index=counts[3],
        width=network.config.hidden_size,
    )
    device = row_U.device
    for planned_pass in plan_passes(
        lengths,
        most_rows=settings.micro_batch,
        layouts=network.layouts,
        device="cuda" if device.type == "cuda" else "cpu",
    ):
        yield torch.tensor(planned_pass.rows, device=device), planned_pass.layout


def _count_unshared(rollouts: RolloutBatch, row_U: Int[Tensor, " used"]) -> Int[Tensor, " used"]:
    """Return the number of input tokens of each response after the prefix that it shares with the previous row."""
    response_UT = rollouts.response_ids_BT[row_U]
    is_input_UT = rollouts.response_mask_BT[row_U] & rollouts.response_mask_BT[row_U].roll(-1, dims=1)
    is_input_UT[:, -1] = False
    same_UT = (response_UT == response_UT.roll(1, dims=0)) & is_input_UT & is_input_UT.roll(1, dims=0)
    prompt_U = row_U // rollouts.group_size
    same_UT &= (prompt_U == prompt_U.roll(1))[:, None]
    same_UT[0] = False
    return is_input_UT.sum(dim=1) - same_UT.long().cumprod(dim=1).sum(dim=1)


def token_logps(
    network: Network,
    rollouts: RolloutBatch,
    row_R: Int[Tensor, " used"],
    settings: ForwardSettings,
    *,
    layout: Layout = "rows",
    entropies: bool = True,
) -> tuple[Float[Tensor, "used token"], Float[Tensor, "used token"] | None]:
    """Return the log-probability of each response token of the rows ``row_R``, and the entropy of its distribution.

    The distribution is softmax(logits / temperature). Both tensors are float32, in nats, have the width of the batch,
    and are 0 after the response. They have gradients if autograd is enabled. Entropies are None unless ``entropies``,
    because they cost a pass over the vocabulary.
    """
    given = pass_input(rollouts, row_R)
    target_N = given.response_RT[given.mask_RT]
    with network.pass_context(), autocast(target_N.device, settings.autocast):
        if network.head is None or network.trunk is None:
            logit_NV = _plain_logits(network.model, given).float() / settings.temperature
            logp_NV = logit_NV.log_softmax(dim=-1)
            logp_N = logp_NV.gather(1, target_N[:, None])[:, 0]
            entropy_N = -(logp_NV.exp() * logp_NV).sum(dim=-1) if entropies else None
        else:
            hidden_ND = hidden_states(network.trunk, network.config, given, layout)
            logp_N, entropy_N = chunked_logps(
                network.head,
                hidden_ND,
                target_N,
                temperature=settings.temperature,
                products=settings.autocast,
                entropies=entropies,
            )
    full_RT = logp_N.new_zeros(len(row_R), rollouts.response_mask_BT.shape[1])
    mask_RT = rollouts.response_mask_BT[row_R]
    entropy_RT = None if entropy_N is None else full_RT.masked_scatter(mask_RT, entropy_N)
    return full_RT.masked_scatter(mask_RT, logp_N), entropy_RT


def _plain_logits(model: Any, given: PassInput) -> Float[Tensor, "position vocabulary"]:
    """Return the logits at the response positions, computed by the whole model."""
    width = given.response_RT.shape[1]
    arguments = rows_input(given)
    accepted = signature(innermost(model).forward).parameters
    if "logits_to_keep" in accepted:
        arguments["logits_to_keep"] = width
    if "position_ids" not in accepted:
        arguments.pop("position_ids", None)
    return cast("Tensor", model(**arguments).logits[:, -width:][given.mask_RT])


def autocast(device: torch.device, dtype: torch.dtype | None) -> AbstractContextManager[object]:
    """Return a context in which matrix products use ``dtype``. None changes nothing."""
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)
