"""Compute the gradient of one optimizer step from the advantages of its rollouts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.batch import RolloutBatch, distinct_rollouts
from oversharp.trainers.model.forward import ForwardSettings, split_passes, token_logps
from oversharp.trainers.model.network import Network
from oversharp.trainers.objectives.contract import Credit, Objective, TokenLogps


@dataclass(frozen=True, kw_only=True)
class UpdateBatch:
    """Rollouts of one optimizer step with the inputs of the loss.

    ``old_logp_BT`` is None if the policy has not changed since it sampled the rollouts. Then every ratio is 1.
    ``reference_logp_BT`` and ``importance_BT`` are None unless a part of the objective needs them. ``rehearsal`` has
    samples of the reference policy.
    """

    rollouts: RolloutBatch
    credit: Credit
    old_logp_BT: Float[Tensor, "row token"] | None = None
    reference_logp_BT: Float[Tensor, "row token"] | None = None
    importance_BT: Float[Tensor, "row token"] | None = None
    rehearsal: RolloutBatch | None = None


@dataclass(frozen=True, kw_only=True)
class UpdateReport:
    """Loss and statistics of one optimizer step, summed over its passes.

    ``n_used`` is the number of rows with a gradient. ``clip_fraction`` is the share of their tokens whose gradient is
    clipped. ``logp_gap_*`` are mean and maximum of the absolute difference between the token log-probabilities of
    trainer and sampler, in nats. It is a rounding error unless the rollouts are from another distribution.
    ``forward_s`` and ``backward_s`` are wall times.
    """

    loss: float
    n_used: int
    clip_fraction: float
    penalty: float
    rehearsal_loss: float | None
    logp_gap_mean: float
    logp_gap_max: float
    forward_s: float
    backward_s: float


def accumulate_gradient(
    network: Network,
    batch: UpdateBatch,
    objective: Objective,
    settings: ForwardSettings,
    *,
    max_tokens: int,
) -> UpdateReport:
    """Add the gradient of the objective's loss on this batch to the gradients of the parameters.

    The weights of the tokens are computed from the whole batch, so that the size of the passes does not change the
    loss. Rows without advantage and penalty are not computed, but they stay in the divisor. Copies of a response are
    computed once.
    """
    rollouts = batch.rollouts
    device = rollouts.response_ids_BT.device
    advantage_BT = batch.credit.advantage_BT.float().to(device)
    counted_B = batch.credit.counted_PG.flatten().to(device)
    weight_BT = objective.aggregation.token_weights(rollouts.response_mask_BT, counted_B, max_tokens=max_tokens)
    loss_weight_BT = weight_BT if batch.importance_BT is None else weight_BT * batch.importance_BT
    used_B = counted_B if objective.penalties else counted_B & (advantage_BT != 0).any(dim=1)
    distinct_U, copy_of_B = distinct_rollouts(rollouts, used_B)

    # keep the sums on the device, because float() waits for the device
    nothing = torch.zeros((), device=device)
    loss = penalty = clipped = gap_sum = gap_max = nothing
    watch = _Stopwatch(device=device)
    for position_N, layout in split_passes(network, rollouts, distinct_U, settings):
        watch.start("forward")
        place_U = torch.full((len(distinct_U),), -1, device=device)
        place_U[position_N] = torch.arange(len(position_N), device=device)
        place_B = torch.where(copy_of_B >= 0, place_U[copy_of_B.clamp(min=0)], -1)
        row_R = (place_B >= 0).nonzero()[:, 0]
        logp_UT, entropy_UT = token_logps(
            network,
            rollouts,
            distinct_U[position_N],
            settings,
            layout=layout,
            entropies=objective.asks_for("entropy"),
        )
        logp_RT = logp_UT[place_B[row_R]]
        tokens = TokenLogps(
            logp_BT=logp_RT,
            entropy_BT=None if entropy_UT is None else entropy_UT[place_B[row_R]],
            old_logp_BT=logp_RT.detach() if batch.old_logp_BT is None else batch.old_logp_BT[row_R],
            mask_BT=rollouts.response_mask_BT[row_R],
            reference_logp_BT=None if batch.reference_logp_BT is None else batch.reference_logp_BT[row_R],
        )
        gap_RT = ((tokens.old_logp_BT - rollouts.behaviour_logp_BT[row_R]) * tokens.mask_BT).abs()
        gap_sum, gap_max = gap_sum + gap_RT.sum(), torch.maximum(gap_max, gap_RT.max())
        surrogate = objective.surrogate.token_loss(tokens, advantage_BT[row_R])
        part_loss = (loss_weight_BT[row_R] * surrogate.loss_BT).sum()
        clipped = clipped + surrogate.clipped_BT.sum()
        for term in objective.penalties:
            part_penalty = (weight_BT[row_R] * term.token_penalty(tokens)).sum()
            penalty = penalty + part_penalty.detach()
            part_loss = part_loss + part_penalty
        watch.start("backward")
        part_loss.backward()
        loss = loss + part_loss.detach()
    watch.stop()

    rehearsal_loss = None
    if batch.rehearsal is not None and objective.rehearsal is not None:
        rehearsal_loss = rehearse(network, batch.rehearsal, objective.rehearsal.beta, settings)
    n_used, n_tokens = used_B.sum(), rollouts.response_mask_BT[used_B].sum()
    sums = torch.stack([loss, penalty, clipped, gap_sum, gap_max, n_used, n_tokens]).tolist()
    per_token = 1 / max(1, sums[6])
    return UpdateReport(
        loss=sums[0] + (rehearsal_loss or 0.0),
        n_used=int(sums[5]),
        clip_fraction=sums[2] * per_token,
        penalty=sums[1],
        rehearsal_loss=rehearsal_loss,
        logp_gap_mean=sums[3] * per_token,
        logp_gap_max=sums[4],
        forward_s=watch.seconds("forward"),
        backward_s=watch.seconds("backward"),
    )


def rehearse(network: Network, samples: RolloutBatch, beta: float, settings: ForwardSettings) -> float:
    """Add the gradient of the rehearsal loss to the gradients of the parameters, and return the loss.

    The loss is ``beta`` times the negative log-probability, averaged over the tokens of each sample and then over
    samples, at the temperature of the rollouts.
    """
    row_B = torch.arange(len(samples.response_ids_BT), device=samples.response_ids_BT.device)
    loss = torch.zeros((), device=row_B.device)
    for row_R, layout in split_passes(network, samples, row_B, settings):
        logp_RT, _ = token_logps(network, samples, row_R, settings, layout=layout, entropies=False)
        part = -beta * (logp_RT.sum(dim=1) / samples.n_tokens_B[row_R]).sum() / len(row_B)
        part.backward()
        loss = loss + part.detach()
    return float(loss)


@torch.no_grad()
def frozen_logps(network: Network, rollouts: RolloutBatch, settings: ForwardSettings) -> Float[Tensor, "row token"]:
    """Return the log-probability of every response token, without gradient.

    Copies of a response are computed once.
    """
    every_B = torch.ones(len(rollouts.response_ids_BT), dtype=torch.bool, device=rollouts.response_ids_BT.device)
    distinct_U, copy_of_B = distinct_rollouts(rollouts, every_B)
    logp_UT = torch.zeros(len(distinct_U), rollouts.response_ids_BT.shape[1], device=distinct_U.device)
    for position_N, layout in split_passes(network, rollouts, distinct_U, settings):
        logp_UT[position_N], _ = token_logps(
            network, rollouts, distinct_U[position_N], settings, layout=layout, entropies=False
        )
    return logp_UT[copy_of_B]


@dataclass(kw_only=True)
class _Stopwatch:
    """Measures the seconds of each phase.

    On a GPU it uses CUDA events, because the clock of the host measures only the launches of kernels.
    """

    device: torch.device
    _marks: list[tuple[str, float | torch.cuda.Event]] = field(default_factory=list)

    def start(self, phase: str) -> None:
        """Start ``phase`` and end the previous phase."""
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append((phase, event))
        else:
            self._marks.append((phase, time.perf_counter()))

    def stop(self) -> None:
        """End the last phase."""
        self.start("")

    def seconds(self, phase: str) -> float:
        """Return the total seconds of ``phase``. This waits for the GPU, so call it at the end."""
        total = 0.0
        for (name, start), (_, end) in zip(self._marks[:-1], self._marks[1:], strict=True):
            if name != phase:
                continue
            if isinstance(start, float) and isinstance(end, float):
                total += end - start
            elif isinstance(start, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
                total += start.elapsed_time(end) / 1000
        return total
