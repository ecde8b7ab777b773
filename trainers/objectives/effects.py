"""Parts and settings that change nothing in a run of a given size, found by the gradient of the loss.

``iac`` with two rollouts a prompt is GRPO to the last bit, as (2 − 1)^alpha is 1; ``easy_filter:share=0.02`` leaves out
no prompt of a batch of 32, ``overlong`` punishes none where the limit lies beyond the longest response, and
``importance:mode=exact,cap=3`` has a cap that nobody looks at. No list says so: the gradient of the loss with respect
to every token's log-probability is taken on random batches of the run's own size, far from the policy that drew them,
with the part and without it, and with other values of every setting that the expression writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives import Setting, settings_as_written
from oversharp.trainers.objectives.composition import idle_parts
from oversharp.trainers.objectives.contract import GroupedRewards, Objective, Part, TokenLogps, name_of

#: Batches that are tried: of prompts that are never, sometimes and always solved.
_BATCHES = 8
_TOKENS = 7


def void_in_a_run(objective: Objective, expression: str, *, prompts: int, group_size: int, longest: int) -> list[str]:
    """What of an expression changes nothing with so many prompts and rollouts and so long responses, one line each.

    ``expression`` is what the user wrote: only settings that stand there are tried. Parts whose own settings switch
    them off are not named (``composition.cautions`` names them).
    """
    batches = list(_batches(prompts, group_size, longest))
    own = [_gradient(objective, batch, longest) for batch in batches]

    def is_void(other: Objective) -> bool:
        return all(
            torch.allclose(gradient, _gradient(other, batch, longest), rtol=1e-9, atol=1e-15)
            for gradient, batch in zip(own, batches, strict=True)
        )

    found = []
    switched_off = idle_parts(objective)
    for part in (*objective.shapings, *objective.calibrations):
        if part not in switched_off and is_void(_without(objective, part)):
            size = f"--batch-prompts {prompts}, --group-size {group_size} and responses of at most {longest} tokens"
            found.append(f"{name_of(part)} changes nothing with {size}; leave it out, or change these or its settings")
    written = settings_as_written(expression)
    of_rollouts = (objective.rehearsal, objective.decoding, objective.resampling)  # they act before any loss
    for part in objective.parts:
        if part in switched_off or any(part is one for one in of_rollouts):
            continue
        for setting in written.get(name_of(part), ()):
            others = [_with(objective, part, other) for other in _other_values(part, setting)]
            if others and all(map(is_void, others)):
                found.append(f"{name_of(part)}: {setting} changes nothing beside the other parts and settings")
    return found


def looks_at_correct(objective: Objective, *, prompts: int, group_size: int, longest: int) -> bool:
    """Whether it makes any difference to the loss which samples are correct, if rewards stay what they are."""
    for rewards, tokens, log_ratio_BT in _batches(prompts, group_size, longest):
        other = replace(rewards, correct_PG=~rewards.correct_PG)
        one, two = (_gradient(objective, (held, tokens, log_ratio_BT), longest) for held in (rewards, other))
        if not torch.allclose(one, two, rtol=1e-9, atol=1e-15):
            return True
    return False


def _batches(prompts: int, group_size: int, longest: int) -> Iterator[tuple[GroupedRewards, TokenLogps, Tensor]]:
    """Rewards, tokens and log π_old − log(behaviour) of a batch; ratios lie on both sides of every usual bound."""
    draw = torch.Generator().manual_seed(0)
    shape = (prompts, group_size)
    for _ in range(_BATCHES):
        chance_P = torch.rand(prompts, generator=draw).double() * 1.4 - 0.2
        correct_PG = torch.rand(shape, generator=draw).double() < chance_P[:, None]
        share_PG, truncated_PG, reference_PG, partial_PG = torch.rand(4, *shape, generator=draw).double()
        n_tokens_PG = torch.where(truncated_PG < 0.3, longest, 1 + (share_PG * (longest - 1)).long())
        width_B = 1 + (n_tokens_PG.flatten().double() * (_TOKENS - 1) / max(1, longest)).long().clamp(max=_TOKENS - 1)
        mask_BT = torch.arange(_TOKENS)[None, :] < width_B[:, None]
        old_BT, moved_BT, gap_BT, entropy_BT, behaviour_BT = torch.rand(5, *mask_BT.shape, generator=draw).double()
        rewards = GroupedRewards(
            reward_PG=torch.where(correct_PG, 1.0, partial_PG / 2),
            correct_PG=correct_PG,
            n_tokens_PG=n_tokens_PG,
            truncated_PG=truncated_PG < 0.3,
            reference_logp_PG=-20 * reference_PG,
            greedy_correct_P=torch.rand(prompts, generator=draw) < 0.5,
            reference_gap_BT=(gap_BT - 0.5) * mask_BT,
            mask_BT=mask_BT,
        )
        # moved by the same at every token of half of the rows: for ratios of whole responses
        together_B1 = (torch.rand(len(mask_BT), 1, generator=draw) < 0.5).double()
        shift_BT = 6 * ((moved_BT[:, :1] * together_B1 + moved_BT * (1 - together_B1)) - 0.5)
        tokens = TokenLogps(
            logp_BT=(shift_BT - 8 - old_BT),
            old_logp_BT=-8 - old_BT,
            mask_BT=mask_BT,
            entropy_BT=3 * entropy_BT,
            reference_logp_BT=-8 - old_BT - gap_BT,
        )
        yield rewards, tokens, 4 * (behaviour_BT - 0.5) * mask_BT


def _gradient(
    objective: Objective, batch: tuple[GroupedRewards, TokenLogps, Tensor], longest: int
) -> Float[Tensor, " all"]:
    """Of the loss with respect to log-probabilities and entropies, as ``trainers.update`` makes it; then the loss.

    The loss itself stands in the metrics: ``kl:straight_through=true`` shows one estimator and follows another.
    """
    rewards, tokens, log_ratio_BT = batch
    if not objective.by_token:
        rewards = replace(rewards, reference_gap_BT=None)
    credit = objective.credit(rewards)
    logp_BT = tokens.logp_BT.clone().requires_grad_()
    entropy_BT = (tokens.entropy_BT if tokens.entropy_BT is not None else torch.zeros_like(logp_BT)).requires_grad_()
    held = replace(tokens, logp_BT=logp_BT, entropy_BT=entropy_BT)
    counted_B = credit.counted_PG.flatten()
    weight_BT = objective.aggregation.token_weights(tokens.mask_BT, counted_B, max_tokens=longest)
    importance_BT = torch.ones_like(weight_BT)
    if objective.correction is not None:
        importance_BT = objective.correction.importance(log_ratio_BT, tokens.mask_BT)
    loss = (weight_BT * importance_BT * objective.surrogate.token_loss(held, credit.by_token).loss_BT).sum()
    for penalty in objective.penalties:
        loss = loss + (weight_BT * penalty.token_penalty(held)).sum()
    gradients = torch.autograd.grad(loss, (logp_BT, entropy_BT), allow_unused=True, materialize_grads=True)
    return torch.cat([*(gradient.flatten() for gradient in gradients), loss.detach()[None]])


def _other_values(part: Part, setting: str) -> list[Part]:
    """The part with other values of one of its settings, as far as it takes them."""
    value: Setting | None = getattr(part, setting)
    kind = get_type_hints(type(part))[setting]
    others: Sequence[Any] = ()
    if isinstance(value, bool):
        others = (not value,)
    elif get_origin(kind) is Literal:
        others = [option for option in get_args(kind) if option != value]
    elif isinstance(value, int):
        others = (value + 1, 2 * value + 3, value // 2, 0, 1)
    elif isinstance(value, float):
        others = (2 * value + 1, value / 2, value + 0.1, 0.9 * value)
    options = [option for option in get_args(kind) if get_origin(option) is Literal]
    if options:
        others = [option for option in get_args(options[0]) if option != value]
    found = []
    for other in dict.fromkeys(others):
        if other == value:
            continue
        try:
            found.append(replace(part, **{setting: other}))  # type: ignore[type-var]
        except ValueError:
            continue  # out of its range
    return found


def _with(objective: Objective, part: Part, other: Part) -> Objective:
    """The objective with another part in the place of one."""
    held: Mapping[str, Any] = {field.name: getattr(objective, field.name) for field in fields(objective)}
    for name, value in held.items():
        if value is part:
            changed: Any = {name: other}
            return replace(objective, **changed)
        if isinstance(value, tuple) and any(one is part for one in value):
            changed = {name: tuple(other if one is part else one for one in value)}
            return replace(objective, **changed)
    raise ValueError(f"{name_of(part)} is no part of {objective.expression}")


def _without(objective: Objective, part: Part) -> Objective:
    return replace(
        objective,
        shapings=tuple(one for one in objective.shapings if one is not part),
        calibrations=tuple(one for one in objective.calibrations if one is not part),
    )
