"""Find parts and settings that have no effect in a run of a given size, from the gradient of the loss.

For example, ``iac`` with two rollouts per prompt equals GRPO, because (2 − 1)^alpha is 1. ``easy_filter:share=0.02``
removes no prompt from a batch of 32. ``overlong`` has no effect if its limit exceeds the maximum response length.
``importance:mode=exact,cap=3`` ignores the cap. There is no list of such cases. Instead, the gradient of the loss with
respect to the log-probabilities of all tokens is computed on random off-policy batches of the run's size, with and
without the part, and with other values of every setting in the expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives import Setting, settings_as_written
from oversharp.trainers.objectives.composition import find_idle_parts, remove_parts
from oversharp.trainers.objectives.contract import GroupedRewards, Objective, Part, TokenLogps, name_of

#: Number of random batches. They have prompts that are never, sometimes and always solved.
_BATCHES = 8
_TOKENS = 7


def find_void_parts(objective: Objective, expression: str, *, prompts: int, group_size: int, longest: int) -> list[str]:
    """Return one error message for each part or setting that has no effect in a run of this size.

    Only settings in ``expression`` are tested. Parts that their own settings turn off are not reported here, but by
    ``composition.find_cautions``.
    """
    batches = list(_batches(prompts, group_size, longest))
    own = [_gradient(objective, batch, longest) for batch in batches]

    def is_void(other: Objective) -> bool:
        return all(
            torch.allclose(gradient, _gradient(other, batch, longest), rtol=1e-9, atol=1e-15)
            for gradient, batch in zip(own, batches, strict=True)
        )

    messages = []
    switched_off = find_idle_parts(objective)
    for part in (*objective.shapings, *objective.calibrations):
        if part not in switched_off and is_void(remove_parts(objective, [part])):
            size = f"--batch-prompts {prompts}, --group-size {group_size} and responses of at most {longest} tokens"
            messages.append(f"{name_of(part)} has no effect with {size}; remove it, or change these or its settings")
    written = settings_as_written(expression)
    of_rollouts = (objective.rehearsal, objective.decoding, objective.resampling)  # parts that do not change the loss
    for part in objective.parts:
        if part in switched_off or any(part is of_rollout for of_rollout in of_rollouts):
            continue
        for setting in written.get(name_of(part), ()):
            others = [_replace_part(objective, part, other) for other in _other_values(part, setting)]
            if others and all(map(is_void, others)):
                messages.append(f"{name_of(part)}: {setting} has no effect together with the other parts and settings")
    return messages


def uses_correctness(objective: Objective, *, prompts: int, group_size: int, longest: int) -> bool:
    """Return whether the loss depends on which samples are correct, if rewards are fixed."""
    for rewards, tokens, log_ratio_BT in _batches(prompts, group_size, longest):
        other = replace(rewards, correct_PG=~rewards.correct_PG)
        first, second = (_gradient(objective, (variant, tokens, log_ratio_BT), longest) for variant in (rewards, other))
        if not torch.allclose(first, second, rtol=1e-9, atol=1e-15):
            return True
    return False


def _batches(prompts: int, group_size: int, longest: int) -> Iterator[tuple[GroupedRewards, TokenLogps, Tensor]]:
    """Yield rewards, tokens and log π_old − log(behaviour) of random batches.

    Some ratios are outside all usual clip bounds.
    """
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
        # in half of the rows, all tokens have the same shift, so that ratios of whole responses vary too
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
    """Return the gradient with respect to log-probabilities and entropies as in ``trainers.update``, and the loss.

    The loss is included because metrics report it: with ``kl:straight_through=true``, the setting ``kind`` changes only
    the loss.
    """
    rewards, tokens, log_ratio_BT = batch
    if not objective.is_by_token:
        rewards = replace(rewards, reference_gap_BT=None)
    credit = objective.credit(rewards)
    logp_BT = tokens.logp_BT.clone().requires_grad_()
    entropy_BT = (tokens.entropy_BT if tokens.entropy_BT is not None else torch.zeros_like(logp_BT)).requires_grad_()
    moved = replace(tokens, logp_BT=logp_BT, entropy_BT=entropy_BT)
    counted_B = credit.counted_PG.flatten()
    weight_BT = objective.aggregation.token_weights(tokens.mask_BT, counted_B, max_tokens=longest)
    importance_BT = torch.ones_like(weight_BT)
    if objective.correction is not None:
        importance_BT = objective.correction.importance(log_ratio_BT, tokens.mask_BT)
    loss = (weight_BT * importance_BT * objective.surrogate.token_loss(moved, credit.advantage_BT).loss_BT).sum()
    for penalty in objective.penalties:
        loss = loss + (weight_BT * penalty.token_penalty(moved)).sum()
    gradients = torch.autograd.grad(loss, (logp_BT, entropy_BT), allow_unused=True, materialize_grads=True)
    return torch.cat([*(gradient.flatten() for gradient in gradients), loss.detach()[None]])


def _other_values(part: Part, setting: str) -> list[Part]:
    """Return copies of the part, each with another valid value of one setting."""
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
    parts = []
    for other in dict.fromkeys(others):
        if other == value:
            continue
        try:
            parts.append(replace(part, **{setting: other}))  # type: ignore[type-var]
        except ValueError:
            continue  # the value is out of range
    return parts


def _replace_part(objective: Objective, part: Part, other: Part) -> Objective:
    """Return the objective with ``other`` in place of ``part``."""
    values: Mapping[str, Any] = {field.name: getattr(objective, field.name) for field in fields(objective)}
    for name, value in values.items():
        if value is part:
            changed: Any = {name: other}
            return replace(objective, **changed)
        if isinstance(value, tuple) and any(member is part for member in value):
            changed = {name: tuple(other if member is part else member for member in value)}
            return replace(objective, **changed)
    raise ValueError(f"{name_of(part)} is not a part of {objective.expression}")
