"""GRPO trainer for TRL (1.16) with calibrated advantages: IAC, scale-matched IAC, negative-only.

    pip install . 'trl>=1.16,<1.17'    # in the checkout

    from oversharp.trainers.integrations.trl import CalibratedGRPOConfig, CalibratedGRPOTrainer

    trainer = CalibratedGRPOTrainer(
        model="Qwen/Qwen3-0.6B",
        reward_funcs=[is_right, is_well_formed],
        args=CalibratedGRPOConfig(
            calibration="iac:alpha=1.0,scale_matched=true", verdict_from="is_right", output_dir="runs/trl"
        ),
        train_dataset=dataset,
    )
    trainer.train()

Everything else is as in TRL: generation, vLLM, loss types, ``scale_rewards``, accelerate. On a cluster, start the
script with ``accelerate launch``. Supported are calibrations that only change advantages and need no other inputs:
``iac`` with its settings, and ``negative_only``.

A sample is correct if its reward from the function ``verdict_from`` exceeds ``correct_above``. By default, this is the
weighted sum of all rewards. If there are other rewards than the verifier's, set ``verdict_from`` to the verifier.

Two methods of TRL are extended: ``_calculate_rewards``, to record the rewards, and
``_generate_and_score_completions``, the smallest method that contains the computation of advantages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers import objectives
from oversharp.trainers.objectives.composition import rollouts_of_every_kind
from oversharp.trainers.objectives.contract import Calibration, Credit, GroupedRewards, name_of

if TYPE_CHECKING or find_spec("trl") is not None:
    from trl import GRPOConfig, GRPOTrainer
else:  # placeholders, so that the module can be imported and documented without TRL

    class GRPOConfig:
        """Placeholder for TRL's class."""

        def __post_init__(self) -> None:
            raise ConfigError("CalibratedGRPOConfig needs TRL: pip install 'trl>=1.16,<1.17'")

    class GRPOTrainer:
        """Placeholder for TRL's class."""


@dataclass
class CalibratedGRPOConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's ``GRPOConfig`` with settings of the calibration.

    ``calibration`` is ``iac`` with its settings, as in ``iac:alpha=0.5``, or ``negative_only``. A sample is correct if
    its reward from the function ``verdict_from`` exceeds ``correct_above``. If ``verdict_from`` is None, the weighted
    sum of all rewards is used.
    """

    calibration: str = field(default="iac", metadata={"help": "Calibration, such as iac:alpha=0.5."})
    verdict_from: str | None = field(default=None, metadata={"help": "Reward function of the verifier."})
    correct_above: float = field(default=0.5, metadata={"help": "Correct samples have a larger reward."})

    def __post_init__(self) -> None:
        super().__post_init__()
        calibrations(self.calibration)


def calibrations(expression: str) -> tuple[Calibration, ...]:
    """Return the calibrations of an expression. Raise ``ConfigError`` if TRL does not support a part of it.

    >>> calibrations("iac:alpha=0.5")
    (Iac(alpha=0.5, scale_matched=False, s_plus='correct'),)
    >>> calibrations("grpo:ddof=0+iac")
    Traceback (most recent call last):
    ...
    oversharp.diagnostics.records.errors.ConfigError: calibration 'grpo:ddof=0+iac': only calibrations such as...
    """
    objective, plain = objectives.parse(expression), objectives.parse(objectives.DEFAULTS)
    chosen = objective.calibrations
    others = [part for part in objective.parts if part not in chosen and part not in plain.parts]
    if not chosen or others or any(part.needs for part in chosen):
        raise ConfigError(
            f"calibration {expression!r}: only calibrations such as iac and negative_only are supported in TRL, and "
            "none that needs a reference or a greedy response; pass other settings to GRPOConfig"
        )
    rewards = rollouts_of_every_kind(partial_rewards=True)
    apply_calibrations(chosen, torch.zeros_like(rewards.reward_PG), rewards)
    return chosen


def apply_calibrations(
    chosen: tuple[Calibration, ...], advantage_PG: Float[Tensor, "prompt group"], rewards: GroupedRewards
) -> Float[Tensor, "prompt group"]:
    """Apply all calibrations, and return the advantages.

    Raises ``ConfigError`` if a calibration removes samples from the divisor of the loss.
    """
    credit = Credit(advantage_PG=advantage_PG, counted_PG=torch.ones_like(advantage_PG, dtype=torch.bool))
    for calibration in chosen:
        credit = calibration.calibrate(credit, rewards)
    if not bool(credit.counted_PG.all()):
        names = " and ".join(name_of(calibration) for calibration in chosen)
        raise ConfigError(
            f"calibration {names}: removes samples from the divisor of the loss, which TRL does not support"
        )
    return credit.advantage_PG


class CalibratedGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's ``GRPOTrainer`` with calibrated advantages. Its ``args`` must be a ``CalibratedGRPOConfig``."""

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: list, completions: list, completion_ids_list: list
    ) -> Float[Tensor, "sample function"]:
        # record the rewards of all processes, because TRL later selects those of this process
        self._reward_NF = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        return self._reward_NF

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        local_B = output["advantages"]
        length_B, has_end_B = self._lengths(output)
        group = self.num_generations if self.model.training else self.num_generations_eval
        gathered_B, length_B, has_end_B = (self.accelerator.gather(part) for part in (local_B, length_B, has_end_B))
        rewards = GroupedRewards(
            reward_PG=self._sum_rewards().view(-1, group),
            correct_PG=self._correct().view(-1, group),
            n_tokens_PG=length_B.view(-1, group),
            truncated_PG=~has_end_B.view(-1, group),
        )
        advantage_PG = apply_calibrations(calibrations(self.args.calibration), gathered_B.view(-1, group), rewards)
        all_B = advantage_PG.flatten()
        first = self.accelerator.process_index * len(local_B)
        output["advantages"] = all_B[first : first + len(local_B)]
        logged = self._logs["advantages"]  # TRL logged advantages before calibration: replace them
        for _ in range(min(len(logged), len(all_B))):
            logged.pop()
        logged.extend(all_B.tolist())
        return output

    def _lengths(self, output: dict[str, Any]) -> tuple[Tensor, Bool[Tensor, " row"]]:
        ids_BT, mask_BT = output["completion_ids"], output["completion_mask"]
        ends_BT = torch.isin(ids_BT, torch.tensor(self.eos_token_ids, device=ids_BT.device))
        return mask_BT.sum(dim=1), (ends_BT & mask_BT.bool()).any(dim=1)

    def _sum_rewards(self) -> Float[Tensor, " sample"]:
        return (self._reward_NF * self.reward_weights.to(self._reward_NF.device)).nansum(dim=1)

    def _correct(self) -> Bool[Tensor, " sample"]:
        verdict_from = self.args.verdict_from
        if verdict_from is None:
            return self._sum_rewards() > self.args.correct_above
        if verdict_from not in self.reward_func_names:
            known = ", ".join(self.reward_func_names)
            raise ConfigError(f"verdict_from {verdict_from!r}: unknown reward function; choose from {known}")
        return self._reward_NF[:, self.reward_func_names.index(verdict_from)] > self.args.correct_above
