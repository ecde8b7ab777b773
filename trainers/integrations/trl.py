"""A GRPO trainer of TRL (1.16) whose advantages are calibrated: IAC, scale-matched IAC, negative-only.

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

Everything else is TRL's: generation, vLLM, loss types, ``scale_rewards``, accelerate. On a cluster the script is
started as any of TRL's, with ``accelerate launch``. The calibration is any of ours that changes advantages alone and
asks for nothing more: ``iac`` with its settings, or ``negative_only``.

What counts as correct: a sample for which the reward function ``verdict_from`` says more than ``correct_above``; by
default the weighted sum of all of them must. Name the verifier as soon as other rewards are added to it.

Two methods of TRL are overridden, both with a call of their own: ``_calculate_rewards`` to see the rewards, and
``_generate_and_score_completions`` because TRL computes the advantages in its midst and leaves no narrower place.
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
else:  # the module can be read and documented without TRL; making one of its classes cannot work

    class GRPOConfig:
        """Stands where TRL's would."""

        def __post_init__(self) -> None:
            raise ConfigError("CalibratedGRPOConfig needs TRL: pip install 'trl>=1.16,<1.17'")

    class GRPOTrainer:
        """Stands where TRL's would."""


@dataclass
class CalibratedGRPOConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's ``GRPOConfig`` and how its advantages are calibrated.

    ``calibration`` is ``iac`` with its settings, as in ``iac:alpha=0.5``, or ``negative_only``. ``verdict_from`` names
    the reward function that decides whether a sample is correct, None for the weighted sum of all; ``correct_above``
    is the reward that a correct sample exceeds.
    """

    calibration: str = field(default="iac", metadata={"help": "Calibration, such as iac:alpha=0.5."})
    verdict_from: str | None = field(default=None, metadata={"help": "Reward function that is the verifier."})
    correct_above: float = field(default=0.5, metadata={"help": "Reward that a correct sample exceeds."})

    def __post_init__(self) -> None:
        super().__post_init__()
        calibrations(self.calibration)


def calibrations(expression: str) -> tuple[Calibration, ...]:
    """The calibrations of an expression. ``ConfigError`` where it says more than TRL can be made to do.

    >>> calibrations("iac:alpha=0.5")
    (Iac(alpha=0.5, scale_matched=False, s_plus='correct'),)
    >>> calibrations("grpo:ddof=0+iac")
    Traceback (most recent call last):
    ...
    oversharp.diagnostics.records.errors.ConfigError: calibration 'grpo:ddof=0+iac': only calibrations can be...
    """
    objective, plain = objectives.parse(expression), objectives.parse(objectives.DEFAULTS)
    chosen = objective.calibrations
    others = [part for part in objective.parts if part not in chosen and part not in plain.parts]
    asking = [part for part in chosen if part.needs]
    if not chosen or others or asking:
        raise ConfigError(
            f"calibration {expression!r}: only calibrations can be given to TRL, such as iac or negative_only, and of "
            "these none that needs a reference or a greedy response; the rest are settings of GRPOConfig"
        )
    rewards = rollouts_of_every_kind(partial_rewards=True)
    apply_calibrations(chosen, torch.zeros_like(rewards.reward_PG), rewards)
    return chosen


def apply_calibrations(
    chosen: tuple[Calibration, ...], advantage_PG: Float[Tensor, "prompt group"], rewards: GroupedRewards
) -> Float[Tensor, "prompt group"]:
    """Return the advantages after all calibrations. Raise ``ConfigError`` if one removes samples from the divisor."""
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
    """TRL's ``GRPOTrainer`` with calibrated advantages; takes a ``CalibratedGRPOConfig``."""

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: list, completions: list, completion_ids_list: list
    ) -> Float[Tensor, "sample function"]:
        # of all processes, in the order of the advantages before TRL takes this process's slice
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
        logged = self._logs["advantages"]  # what TRL has just logged was not calibrated yet
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
            raise ConfigError(f"verdict_from {verdict_from!r}: no reward function is called so; there are {known}")
        return self._reward_NF[:, self.reward_func_names.index(verdict_from)] > self.args.correct_above
