"""Objectives against ``GRPOTrainer._compute_loss``, values and gradients.

The method reads a few settings of its trainer and one forward pass; both are given to it as plain values.
"""

from __future__ import annotations

import math
from collections import defaultdict
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from oversharp.trainers import objectives

CLOSE = {"rtol": 1e-6, "atol": 1e-6}
LONGEST = 20


def trl_loss(trl: ModuleType, batch: Any, **settings: Any) -> torch.Tensor:
    accelerator = SimpleNamespace(
        num_processes=1, sync_gradients=True, gather=lambda part: part, reduce=lambda part, reduction: part
    )
    trainer = SimpleNamespace(
        **{
            "accelerator": accelerator,
            "args": SimpleNamespace(
                delta=settings.pop("delta", None), use_bias_correction_kl=False, steps_per_generation=1
            ),
            "model": SimpleNamespace(training=True),
            "loss_type": "grpo",
            "importance_sampling_level": "token",
            "beta": 0.0,
            "epsilon_low": 0.2,
            "epsilon_high": 0.2,
            "entropy_coef": 0.0,
            "top_entropy_quantile": 1.0,
            "off_policy_mask_threshold": None,
            "use_vllm": False,
            "vllm_importance_sampling_correction": False,
            "aux_loss_enabled": False,
            "use_adaptive_entropy": False,
            "max_completion_length": LONGEST,
            "current_gradient_accumulation_steps": 1,
            "_entropy_bonus_enabled": "entropy_coef" in settings,
            "_metrics": {"train": defaultdict(list)},
            "_get_per_token_logps_and_entropies": lambda *_, **__: (
                batch.tokens.logp_BT,
                batch.tokens.entropy_BT,
                None,
            ),
            **settings,
        }
    )
    ids_BT = torch.zeros(batch.mask_BT.shape, dtype=torch.long)
    inputs = {
        "prompt_ids": ids_BT[:, :1],
        "prompt_mask": ids_BT[:, :1],
        "completion_ids": ids_BT,
        "completion_mask": batch.mask_BT.long(),
        "advantages": batch.advantage_B,
        "old_per_token_logps": batch.tokens.old_logp_BT,
        "ref_per_token_logps": batch.tokens.reference_logp_BT,
        "num_items_in_batch": batch.mask_BT.sum(),
    }
    return trl.GRPOTrainer._compute_loss(trainer, trainer.model, inputs)


def our_loss(expression: str, batch: Any) -> torch.Tensor:
    objective = objectives.parse(expression)
    loss_BT = objective.surrogate.token_loss(batch.tokens, batch.advantage_B).loss_BT
    for penalty in objective.penalties:
        loss_BT = loss_BT + penalty.token_penalty(batch.tokens)
    counted_B = torch.ones(len(batch.mask_BT), dtype=torch.bool)
    weight_BT = objective.aggregation.token_weights(batch.mask_BT, counted_B, max_tokens=LONGEST)
    return (weight_BT * loss_BT).sum()


@pytest.mark.parametrize(
    ("expression", "settings"),
    [
        ("clip+seq_mean_token_mean", {"loss_type": "grpo"}),
        ("clip:high=0.28+token_mean", {"loss_type": "dapo", "epsilon_high": 0.28}),
        ("clip+token_mean", {"loss_type": "bnpo"}),
        ("clip+seq_sum_constant", {"loss_type": "dr_grpo"}),
        # delta bounds the ratio itself: the dual clip, wherever it is above 1 + epsilon_high
        ("clip:dual=3", {"loss_type": "grpo", "delta": 3.0}),
        ("gspo:low=0.0003,high=0.0004", {"epsilon_low": 3e-4, "epsilon_high": 4e-4}),
        ("gspo:low=0.2,high=0.3+token_mean", {"loss_type": "dapo", "epsilon_low": 0.2, "epsilon_high": 0.3}),
        # epsilon_high is the bound itself here
        ("cispo:low=1,high=0.5", {"loss_type": "cispo", "epsilon_high": 1.5}),
        ("cispo", {"loss_type": "cispo", "epsilon_high": 5.0}),
        ("clip+kl:beta=0.04,kind=k3", {"loss_type": "grpo", "beta": 0.04}),
        ("clip+token_mean+kl:beta=0.04", {"loss_type": "dapo", "beta": 0.04}),
        ("clip+token_mean+entropy_bonus:coefficient=0.01", {"loss_type": "dapo", "entropy_coef": 0.01}),
    ],
)
def test_an_objective_agrees_with_trl_in_value_and_gradient(
    trl: ModuleType, batch: Any, expression: str, settings: dict[str, Any]
) -> None:
    if expression.startswith("gspo"):
        settings = {**settings, "importance_sampling_level": "sequence"}
    ours, theirs = our_loss(expression, batch), trl_loss(trl, batch, **settings)
    assert_close(ours, theirs, **CLOSE)
    slopes = [torch.autograd.grad(loss, batch.tokens.logp_BT)[0] for loss in (ours, theirs)]
    assert_close(*slopes, **CLOSE)


def test_trl_takes_the_entropy_bonus_over_tokens_whatever_its_loss_type(trl: ModuleType, batch: Any) -> None:
    plain, with_bonus = (trl_loss(trl, batch, loss_type="grpo", **more) for more in ({}, {"entropy_coef": 0.01}))
    mean = batch.tokens.entropy_BT[batch.mask_BT].mean()
    assert_close(with_bonus, plain - 0.01 * mean, **CLOSE)
    ours = our_loss("clip+entropy_bonus:coefficient=0.01", batch)
    assert not math.isclose(ours.item(), with_bonus.item(), rel_tol=1e-4)
