"""Find parts of an expression that have no effect together with its other parts, by testing them on a batch.

For example, ``iac+negative_only`` would train GRPO-N, not IAC: IAC raises positive advantages, and negative_only
removes them. There is no list of such pairs. Instead, advantages are computed for many kinds of rollouts, with and
without each shaping and calibration, and with other settings of the estimator. If a part changes nothing together with
the others, but does alone, it is reported with the parts that cancel it. A common factor of all advantages is not a
change: ``iac:scale_matched=true+negative_only`` would only take smaller steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import torch

from oversharp.trainers.objectives.contract import (
    Credit,
    Estimator,
    GroupedRewards,
    Objective,
    Part,
    Penalty,
    Surrogate,
    TokenLogps,
    name_of,
)
from oversharp.trainers.objectives.estimators.grpo import Grpo
from oversharp.trainers.objectives.surrogates.clip import Clip
from oversharp.trainers.objectives.surrogates.reinforce import Reinforce


def find_faults(objective: Objective) -> list[str]:
    """Return one error message for each part without effect; empty if every part has an effect."""
    if objective.is_by_token and objective.calibrations:
        estimator = name_of(objective.estimator)
        return [
            f"{estimator}:kl computes an advantage per token, but {_names(objective.calibrations)} "
            "changes advantages of whole responses; remove one of them"
        ]
    return _find_faults(objective, rollouts_of_every_kind(partial_rewards=True))


def find_cautions(objective: Objective) -> list[str]:
    """Return warnings for a run: those of its parts, and on parts that have no effect if rewards are only 0 and 1."""
    binary = _find_faults(objective, rollouts_of_every_kind(partial_rewards=False))
    return [
        *(part.caution for part in objective.parts if part.caution),
        *(f"{name_of(part)} has no effect with these settings" for part in find_idle_parts(objective)),
        *(f"if all rewards are 0 or 1, {fault}" for fault in binary),
    ]


def find_idle_parts(objective: Objective) -> list[Part]:
    """Return parts that their own settings turn off, such as ``iac:alpha=0``.

    They may be one end of a sweep, or a mistake.
    """
    rewards = rollouts_of_every_kind(partial_rewards=True)
    credited = (*objective.shapings, *objective.calibrations)
    alone = [
        part
        for part in credited
        if not _has_effect(part, remove_parts(objective, [other for other in credited if other is not part]), rewards)
    ]
    rehearsal, decoding, resampling = objective.rehearsal, objective.decoding, objective.resampling
    return [
        *alone,
        *(penalty for penalty in objective.penalties if not _is_charged(penalty)),
        *((rehearsal,) if rehearsal is not None and not rehearsal.beta else ()),
        *((decoding,) if decoding is not None and not decoding.mu else ()),
        *((resampling,) if resampling is not None and resampling.max_rounds == 1 else ()),
    ]


def _is_charged(penalty: Penalty) -> bool:
    """Return whether the penalty is nonzero on random tokens of a policy far from the reference."""
    draw = torch.Generator().manual_seed(0)
    logp_BT, reference_BT, entropy_BT = torch.rand(3, 8, 6, generator=draw).double()
    tokens = TokenLogps(
        logp_BT=-logp_BT,
        old_logp_BT=-logp_BT,
        mask_BT=torch.ones_like(logp_BT, dtype=torch.bool),
        entropy_BT=entropy_BT,
        reference_logp_BT=-reference_BT,
    )
    return bool(penalty.token_penalty(tokens).any())


def off_policy_part(objective: Objective) -> str | None:
    """Return the name of the surrogate if it equals REINFORCE while all ratios are 1, else None.

    This is tested on random tokens: its gradient must equal that of ``reinforce`` if every ratio is 1, and differ
    otherwise. GRPO's default clip is excluded, because every expression without another surrogate has it.
    """
    if objective.surrogate == Clip():
        return None
    draw = torch.Generator().manual_seed(0)
    logp_BT, moved_BT = -torch.rand(2, 8, 6, generator=draw).double()
    on_policy, off_policy = (
        torch.allclose(_gradient(objective.surrogate, logp_BT, old_BT), _gradient(Reinforce(), logp_BT, old_BT))
        for old_BT in (logp_BT, moved_BT)
    )
    return name_of(objective.surrogate) if on_policy and not off_policy else None


def _gradient(surrogate: Surrogate, logp_BT: torch.Tensor, old_logp_BT: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the sum of token losses with respect to the log-probabilities."""
    logp_BT = logp_BT.clone().requires_grad_()
    mask_BT = torch.ones_like(logp_BT, dtype=torch.bool)
    advantage_B = torch.linspace(-1, 1, len(logp_BT), dtype=logp_BT.dtype)
    tokens = TokenLogps(logp_BT=logp_BT, old_logp_BT=old_logp_BT, mask_BT=mask_BT)
    (gradient_BT,) = torch.autograd.grad(surrogate.token_loss(tokens, advantage_B).loss_BT.sum(), logp_BT)
    return gradient_BT


def rollouts_of_every_kind(*, partial_rewards: bool) -> GroupedRewards:
    """Return rewards of many kinds of groups: from all wrong to all correct, with 1 to a million tokens.

    >>> rewards = rollouts_of_every_kind(partial_rewards=False)
    >>> bool((rewards.reward_PG == rewards.correct_PG).all()), rewards.correct_PG.sum(dim=1)[[0, -1]].tolist()
    (True, [0, 8])
    """
    draw = torch.Generator().manual_seed(0)
    uniform_PG, partial_PG, length_PG, truncated_PG, reference_PG = torch.rand(5, 32, 8, generator=draw).double()
    correct_PG = uniform_PG < torch.linspace(0, 1, 32)[:, None]
    return GroupedRewards(
        reward_PG=torch.where(correct_PG, 1.0, partial_PG * partial_rewards),
        correct_PG=correct_PG,
        n_tokens_PG=(2 ** (20 * length_PG)).long(),
        truncated_PG=truncated_PG < 0.2,
        reference_logp_PG=-20 * reference_PG,
        greedy_correct_P=torch.arange(32) % 2 == 0,
    )


def _find_faults(objective: Objective, rewards: GroupedRewards) -> list[str]:
    if (objective.credit(rewards).advantage_PG == 0).all():
        given = f"{_names(objective.calibrations)} removes all advantages of {name_of(objective.estimator)}"
        return [f"every advantage is 0, because {given}; remove one of them"]
    parts = (*objective.shapings, objective.estimator, *objective.calibrations)
    messages = []
    for part in parts:
        others = [other for other in parts if other is not part]
        if _has_effect(part, objective, rewards) or not _has_effect(part, remove_parts(objective, others), rewards):
            continue
        voiding = [other for other in others if _has_effect(part, remove_parts(objective, [other]), rewards)] or others
        what = f"the setting of {name_of(part)}" if part is objective.estimator else name_of(part)
        why = f"it acts on {part.acts_on}, which have no effect there"
        messages.append(f"{what} has no effect together with {_names(voiding)}: {why}; remove one of them")
    return messages


def _has_effect(part: Part, objective: Objective, rewards: GroupedRewards) -> bool:
    """Return whether the part changes which samples count, or the ratios of their advantages."""
    credit = objective.credit(rewards)
    if part is not objective.estimator:
        return not _is_proportional(credit, remove_parts(objective, [part]).credit(rewards))
    others = _with_other_settings(objective.estimator)
    is_brought = any(name_of(part) in other.brings.split("+") for other in objective.calibrations)
    if not others or (is_brought and part == type(part)()):
        return True  # no setting can be tested, or a calibration brings the estimator
    return any(not _is_proportional(credit, replace(objective, estimator=other).credit(rewards)) for other in others)


def _with_other_settings(estimator: Estimator) -> list[Estimator]:
    """Return copies of the estimator, each with another value of one numeric setting.

    Settings of other types always have an effect.
    """
    settings = {field.name: getattr(estimator, field.name) for field in fields(estimator)}  # type: ignore[arg-type]
    numbers = {name: value for name, value in settings.items() if isinstance(value, float)}
    return [type(estimator)(**{**settings, name: 2 * value + 1}) for name, value in numbers.items()]


def remove_parts(objective: Objective, parts: Sequence[Part]) -> Objective:
    """Return the objective without these parts. GRPO's estimator replaces a removed estimator."""
    return replace(
        objective,
        shapings=tuple(shaping for shaping in objective.shapings if shaping not in parts),
        estimator=Grpo() if objective.estimator in parts else objective.estimator,
        calibrations=tuple(calibration for calibration in objective.calibrations if calibration not in parts),
    )


def _is_proportional(first: Credit, second: Credit) -> bool:
    share_PG, other_PG = (
        credit.advantage_PG / credit.advantage_PG.abs().sum().clamp(min=1e-30) for credit in (first, second)
    )
    return torch.equal(first.counted_PG, second.counted_PG) and torch.allclose(
        share_PG, other_PG, rtol=1e-9, atol=1e-12
    )


def _names(parts: Sequence[Part]) -> str:
    return " and ".join(name_of(part) for part in parts)
