"""Surrogates, aggregations, KL and importance weights against verl's, values and gradients."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from oversharp.trainers import objectives
from oversharp.trainers.objectives.penalties.kl import kl_estimate

CLOSE = {"rtol": 1e-6, "atol": 1e-6}
AGGREGATIONS = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "seq_mean_token_mean",
    "seq-mean-token-sum": "seq_mean_token_sum",
    "seq-mean-token-sum-norm": "seq_sum_constant",
}


def weights(expression: str, batch: Any) -> torch.Tensor:
    counted_B = torch.ones(len(batch.mask_BT), dtype=torch.bool)
    aggregation = objectives.parse(expression).aggregation
    return aggregation.token_weights(batch.mask_BT, counted_B, max_tokens=batch.mask_BT.shape[1])


def our_loss(expression: str, batch: Any) -> torch.Tensor:
    loss = objectives.parse(expression).surrogate.token_loss(batch.tokens, batch.advantage_B)
    return (weights(expression, batch) * loss.loss_BT).sum()


def slope(loss: torch.Tensor, batch: Any) -> torch.Tensor:
    [gradient_BT] = torch.autograd.grad(loss, batch.tokens.logp_BT)
    return gradient_BT


def verl_loss(core_algos: ModuleType, name: str, mode: str, batch: Any, **settings: float) -> torch.Tensor:
    config = core_algos.ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **settings)
    loss, _ = core_algos.get_policy_loss_fn(name)(
        old_log_prob=batch.tokens.old_logp_BT,
        log_prob=batch.tokens.logp_BT,
        advantages=batch.advantage_B[:, None].expand(batch.mask_BT.shape),
        response_mask=batch.mask_BT.double(),
        loss_agg_mode=mode,
        config=config,
    )
    return loss


@pytest.mark.parametrize(("mode", "name"), AGGREGATIONS.items())
def test_an_aggregation_agrees_with_verl(core_algos: ModuleType, batch: Any, mode: str, name: str) -> None:
    loss_BT = batch.tokens.old_logp_BT
    theirs = core_algos.agg_loss(loss_mat=loss_BT, loss_mask=batch.mask_BT.double(), loss_agg_mode=mode)
    assert_close((weights(name, batch) * loss_BT).sum(), theirs, **CLOSE)


@pytest.mark.parametrize(("mode", "aggregation"), AGGREGATIONS.items())
@pytest.mark.parametrize(
    ("expression", "name", "settings"),
    [
        # verl's dual clip is on at 3 unless it is set otherwise
        ("clip:low=0.2,high=0.28,dual=3", "vanilla", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}),
        ("clip:low=0.2,high=0.2", "vanilla", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 1e9}),
        ("gspo:low=0.0003,high=0.0004", "gspo", {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}),
        ("gspo:low=0.2,high=0.3", "gspo", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.3}),
        ("cispo:low=0.2,high=0.28", "cispo", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}),
    ],
)
def test_a_surrogate_agrees_with_verl_in_value_and_gradient(
    core_algos: ModuleType,
    batch: Any,
    expression: str,
    name: str,
    settings: dict[str, float],
    mode: str,
    aggregation: str,
) -> None:
    ours = our_loss(f"{expression}+{aggregation}", batch)
    theirs = verl_loss(core_algos, name, mode, batch, **settings)
    assert_close(ours, theirs, **CLOSE)
    assert_close(slope(ours, batch), slope(theirs, batch), **CLOSE)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_a_kl_estimate_agrees_with_verl_in_value_and_gradient(core_algos: ModuleType, batch: Any, kind: str) -> None:
    logp_BT, reference_logp_BT = batch.tokens.logp_BT, batch.tokens.reference_logp_BT
    ours = kl_estimate(logp_BT, reference_logp_BT, kind)
    theirs = core_algos.kl_penalty(logp_BT, reference_logp_BT, kind)
    assert_close(ours, theirs, **CLOSE)
    assert_close(slope(ours.sum(), batch), slope(theirs.sum(), batch), **CLOSE)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_the_straight_through_kl_is_verls_with_a_plus(core_algos: ModuleType, batch: Any, kind: str) -> None:
    [part] = objectives.parse(f"kl:kind={kind},beta=1,straight_through=true").penalties
    ours = part.token_penalty(batch.tokens)
    theirs = core_algos.kl_penalty(batch.tokens.logp_BT, batch.tokens.reference_logp_BT, f"{kind}+")
    assert_close(ours, theirs, **CLOSE)
    assert_close(slope(ours.sum(), batch), slope(theirs.sum(), batch), **CLOSE)


def test_verl_caps_k3_where_we_do_not(core_algos: ModuleType) -> None:
    far = torch.tensor([[-5.0]], dtype=torch.float64)
    assert float(core_algos.kl_penalty(far, torch.zeros_like(far), "k3")) == 10.0
    assert float(kl_estimate(far, torch.zeros_like(far), "k3")) == pytest.approx(torch.e**5 - 6, rel=1e-5)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize(("mode", "threshold"), [("truncate", 2.0), ("mask", "1e-30_2.0")])
def test_importance_weights_agree_with_verl(
    core_algos: ModuleType, batch: Any, level: str, mode: str, threshold: float | str
) -> None:
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

    log_ratio_BT = (batch.tokens.logp_BT - batch.tokens.old_logp_BT).detach()
    theirs, _ = compute_rollout_correction_weights(log_ratio_BT, batch.mask_BT, level, threshold)
    correction = objectives.parse(f"importance:level={level},mode={mode},cap=2").correction
    assert correction is not None
    assert_close(correction.importance(log_ratio_BT, batch.mask_BT), theirs, **CLOSE)
