"""IAC, scale-matched IAC and GRPO-N as advantage estimators of verl (0.9): ``algorithm.adv_estimator=iac``.

Importing this module registers ``iac``, ``iac_scale_matched`` and ``grpo_n`` if verl is installed. verl imports the
module ``external_lib`` in all its processes, including the one that computes advantages:

    pip install --no-deps .    # in the checkout, on every node; also install jaxtyping and cyclopts
    python3 -m verl.trainer.main_ppo \\
        actor_rollout_ref.model.external_lib=oversharp.trainers.integrations.verl \\
        algorithm.adv_estimator=iac \\
        +algorithm.iac.alpha=1.0 +algorithm.iac.correct_above=0.5 \\
        actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean \\
        actor_rollout_ref.rollout.n=8 data.train_files=... actor_rollout_ref.model.path=...

together with the other arguments of the run. ``+algorithm.iac.*`` are optional; the values above are the defaults. If
``external_lib`` is already used, set ``VERL_USE_EXTERNAL_MODULES=oversharp.trainers.integrations.verl`` in the
environment of all processes instead. ``algorithm.norm_adv_by_std_in_grpo=false`` centres rewards without dividing by
the standard deviation, as in verl's GRPO.

Correct responses: verl passes token rewards and prompt uids to a custom estimator, but no verdict. So a response is
correct if its reward exceeds ``correct_above``. Choose a value between the rewards of wrong and right answers: 0.5
suits rewards of 0 and 1, and of -1 and 1. A KL or overlong penalty in the reward shifts both. If the caller passes
``non_tensor_batch`` with ``acc``, verl's name for the verdict, that is used instead.

Agent loops may return several outputs per session. A session is one rollout of a prompt. For its own ``grpo``, verl's
trainer uses the last output of each session and assigns its advantage to the others. For other estimators it passes all
outputs, which would be counted in G and |S+|. ``register`` makes verl treat these estimators like ``grpo``.

There are two differences from verl's ``grpo``. The advantage is exactly 0 in groups of equal rewards. It is also 0 for
a prompt with a single response, for which verl uses the reward itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial, wraps
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import Any, Literal, Protocol, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers.objectives.calibrations.iac import calibrate_advantages
from oversharp.trainers.objectives.contract import scale_matched
from oversharp.trainers.objectives.estimators.dr_grpo import centre_rewards
from oversharp.trainers.objectives.estimators.grpo import CONVENTIONS, standardise_rewards

VERDICT_KEY = "acc"

Kind = Literal["iac", "iac_scale_matched", "grpo_n"]
#: Names of verl's module of the trainer, and of the function that computes advantages for agent loops.
_TRAINER, _COMPUTE = "verl.trainer.ppo.v1.trainer_base", "compute_advantage_for_multi_trajectories"

Estimate = tuple[Float[Tensor, "row token"], Float[Tensor, "row token"]]


class AlgorithmConfig(Protocol):
    """Section ``algorithm`` of verl's configuration."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the setting, or the default if it is missing."""


@dataclass(frozen=True, kw_only=True)
class IacSettings:
    """Section ``algorithm.iac``: the exponent of IAC, and the reward that a correct response exceeds."""

    alpha: float = 1.0
    correct_above: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < float("inf"):
            raise ConfigError(f"algorithm.iac.alpha={self.alpha}: must be 0 or more")


def estimate(
    kind: Kind,
    token_level_rewards: Float[Tensor, "row token"],
    response_mask: Float[Tensor, "row token"],
    index: Sequence[Hashable],
    config: AlgorithmConfig | None = None,
    non_tensor_batch: Mapping[str, Iterable[Any]] | None = None,
) -> Estimate:
    """Return advantages and returns per token. verl passes arguments by these names.

    ``index`` is the uid of each row's prompt. Groups may have different sizes.

    >>> reward_BT = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    >>> estimate("iac", reward_BT, torch.ones(4, 2), ["q"] * 4)[0][:, 0]
    tensor([ 4.5000, -0.5000, -0.5000, -0.5000])
    """
    settings = _settings(kind, config)
    with torch.no_grad():
        # sum over all tokens, as in verl: the mask excludes tool outputs, but the reward may be at a tool output
        reward_B = token_level_rewards.sum(dim=-1)
        if non_tensor_batch is not None and VERDICT_KEY in non_tensor_batch:
            verdicts = [bool(verdict) for verdict in non_tensor_batch[VERDICT_KEY]]
            correct_B = torch.tensor(verdicts, device=reward_B.device)
        else:
            correct_B = reward_B > settings.correct_above
        by_std = True if config is None else bool(config.get("norm_adv_by_std_in_grpo", True))
        advantage_B = advantages(kind, reward_B, correct_B, index, alpha=settings.alpha, by_std=by_std)
        advantage_BT = advantage_B[:, None] * response_mask
    return advantage_BT, advantage_BT


#: Value of ``algorithm.adv_estimator`` → estimator.
ESTIMATORS: Mapping[str, Callable[..., Estimate]] = MappingProxyType(
    {kind: partial(estimate, kind) for kind in get_args(Kind)}
)


def register() -> None:
    """Register the estimators with verl. Repeated calls are allowed. Raise ``ConfigError`` without verl."""
    if find_spec("verl") is None:
        raise ConfigError(
            "verl is not installed; see its installation guide, then import oversharp.trainers.integrations.verl"
        )
    from verl.trainer.ppo.core_algos import register_adv_est

    for name, estimator in ESTIMATORS.items():
        register_adv_est(name)(estimator)
    trainer = _trainer_module()
    compute = getattr(trainer, _COMPUTE, None)
    if compute is not None and not hasattr(compute, "__wrapped__"):
        setattr(trainer, _COMPUTE, group_by_session(compute))


def _trainer_module() -> ModuleType | None:
    """Return verl's trainer module in the process that computes advantages, None in other processes.

    With ``external_lib``, the module is imported already. With the environment variable, verl would import it later, so
    it is imported here.
    """
    if __name__ in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(","):
        with suppress(ImportError):  # workers may lack dependencies of the trainer
            import_module(_TRAINER)
    return sys.modules.get(_TRAINER)


def group_by_session(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap verl's ``compute_advantage_for_multi_trajectories``, so that it treats these estimators like ``grpo``."""

    @wraps(compute)
    def compute_by_session(data: Any, batch_keys: Sequence[str], adv_estimator: str, **settings: Any) -> Any:
        last_S, session_B = last_outputs(batch_keys) if adv_estimator in ESTIMATORS else ([], [])
        if len(last_S) == len(session_B):
            return compute(data, batch_keys, adv_estimator, **settings)
        keys = [batch_keys[row] for row in last_S]
        last = compute(data.select_idxs(last_S), keys, adv_estimator, **settings).batch
        # all tokens of a response have the same advantage, so take that of the first unmasked one
        first_S1 = last["response_mask"].argmax(dim=1, keepdim=True)
        advantage_S1 = last["advantages"].gather(1, first_S1)
        data.batch["advantages"] = advantage_S1[session_B] * data.batch["response_mask"]
        data.batch["returns"] = data.batch["advantages"]
        return data

    return compute_by_session


def last_outputs(keys: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the row of each session's last output, and the session of each row.

    ``keys`` are the rows' keys in verl, ``{uid}_{session}_{output}``.

    >>> last_outputs(["a_0_0", "a_0_1", "a_1_0"])
    ([1, 2], [0, 0, 1])
    """
    parts = [key.rsplit("_", 2) for key in keys]
    names = [(uid, session) for uid, session, _ in parts]
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    last = [0] * len(place)
    for row in sorted(range(len(keys)), key=lambda row: int(parts[row][2])):
        last[place[names[row]]] = row
    return last, [place[name] for name in names]


def advantages(
    kind: Kind,
    reward_B: Float[Tensor, " row"],
    correct_B: Bool[Tensor, " row"],
    index: Sequence[Hashable],
    *,
    alpha: float = 1.0,
    by_std: bool = True,
) -> Float[Tensor, " row"]:
    """Return one advantage per row. Rows with equal ``index`` are a group. The advantage in a group of one is 0.

    ``iac_scale_matched`` keeps the mean absolute advantage of GRPO over the batch. ``grpo_n`` keeps only GRPO's
    negative advantages.

    >>> advantages("grpo_n", torch.tensor([1.0, 7.0, 0.0]), torch.tensor([True, True, False]), ["a", "b", "a"])
    tensor([ 0.0000,  0.0000, -0.7071])
    """
    ddof, eps = CONVENTIONS["verl"]
    plain_B, calibrated_B = torch.zeros_like(reward_B), torch.zeros_like(reward_B)
    for row_PG in _rows_by_size(index):
        reward_PG, correct_PG = reward_B[row_PG], correct_B[row_PG]
        plain_PG = standardise_rewards(reward_PG, ddof=ddof, eps=eps) if by_std else centre_rewards(reward_PG)
        plain_B[row_PG] = plain_PG
        calibrated_B[row_PG] = calibrate_advantages(plain_PG, correct_PG, alpha=alpha)
    if kind == "grpo_n":
        return plain_B.clamp(max=0)
    # match the scale over the whole batch, with groups of all sizes
    return scale_matched(calibrated_B, plain_B) if kind == "iac_scale_matched" else calibrated_B


def _rows_by_size(index: Sequence[Hashable]) -> list[Tensor]:
    """Return the row numbers of the groups: one tensor [prompt, group] for each group size of at least 2."""
    groups: dict[Hashable, list[int]] = {}
    for row, uid in enumerate(index):
        groups.setdefault(uid, []).append(row)
    sizes = sorted({len(rows) for rows in groups.values()} - {1})
    return [torch.tensor([rows for rows in groups.values() if len(rows) == size]) for size in sizes]


def _settings(kind: Kind, config: AlgorithmConfig | None) -> IacSettings:
    given = None if config is None else config.get("iac", None)
    given = {} if given is None else given
    if given and kind == "grpo_n":
        raise ConfigError(f"algorithm.iac.{sorted(given)[0]}: grpo_n has no settings; omit algorithm.iac")
    known = {field.name for field in fields(IacSettings)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise ConfigError(f"algorithm.iac.{unknown[0]}: unknown setting; choose from {', '.join(sorted(known))}")
    return IacSettings(**{name: float(given[name]) for name in given})


if find_spec("verl") is not None and find_spec("ray") is not None:  # verl needs Ray
    register()
