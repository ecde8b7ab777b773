from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from diagnostics.models import load_path
from trainers.rollout import RolloutBatch
from trainers.update import backward, distinct_rollouts, logp_mean


@pytest.fixture(params=["rotary positions", "learned positions"])
def model(request: pytest.FixtureRequest, model_path: Path) -> PreTrainedModel:
    """Random weights, wide enough that a wrong mask or position shows."""
    if request.param == "rotary positions":
        policy = load_path(model_path, device=torch.device("cpu"), dtype="float32").model
    else:
        torch.manual_seed(0)
        policy = GPT2LMHeadModel(GPT2Config(vocab_size=107, n_positions=32, n_embd=24, n_layer=2, n_head=2)).eval()
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4)
    return policy


@pytest.fixture
def rollouts() -> RolloutBatch:
    """Two prompts of different length, two responses each, of 1 to 4 tokens."""
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]], dtype=torch.bool)
    return RolloutBatch(
        group_size=2,
        prompt_ids_PL=torch.tensor([[0, 0, 7, 8], [9, 10, 11, 12]]),
        prompt_mask_PL=torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]], dtype=torch.bool),
        response_ids_BT=torch.tensor([[20, 21, 22, 1], [23, 1, 0, 0], [1, 0, 0, 0], [24, 25, 1, 0]]),
        response_mask_BT=mask,
        logp_sum_B=torch.zeros(4),
        entropy_sum_B=torch.zeros(4),
        truncated_B=torch.zeros(4, dtype=torch.bool),
    )


def naive_logp(model: PreTrainedModel, rollouts: RolloutBatch, row: int, temperature: float) -> torch.Tensor:
    """Log-probabilities of one response, without padding or batching."""
    prompt = rollouts.prompt_ids_PL[row // 2][rollouts.prompt_mask_PL[row // 2]]
    response = rollouts.response_ids_BT[row][rollouts.response_mask_BT[row]]
    logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(1, response[:, None])[:, 0]


def gradient(model: PreTrainedModel) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_padding_changes_no_log_probability(model: PreTrainedModel, rollouts: RolloutBatch, temperature: float) -> None:
    mean_R = logp_mean(model, rollouts, torch.tensor([0, 1, 2, 3]), temperature)
    for row in range(4):
        assert mean_R[row].item() == pytest.approx(
            naive_logp(model, rollouts, row, temperature).mean().item(), rel=1e-4
        )


def test_loss_and_gradient_are_those_of_the_formula(model: PreTrainedModel, rollouts: RolloutBatch) -> None:
    advantage_B = torch.tensor([1.5, -0.5, 0.0, 2.0])
    naive = -sum(advantage_B[row] * naive_logp(model, rollouts, row, 1.0).mean() for row in range(4)) / 4
    naive.backward()
    expected = gradient(model).clone()
    model.zero_grad()
    loss = backward(model, rollouts, advantage_B, temperature=1.0, micro_batch=None)
    assert loss == pytest.approx(naive.item(), rel=1e-5)
    assert torch.allclose(gradient(model), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("micro_batch", [1, 2, 3, 99])
def test_micro_batches_change_neither_loss_nor_gradient(
    model: PreTrainedModel, rollouts: RolloutBatch, micro_batch: int
) -> None:
    advantage_B = torch.tensor([1.5, -0.5, 0.25, 2.0])
    whole = backward(model, rollouts, advantage_B, temperature=1.0, micro_batch=None)
    expected = gradient(model).clone()
    model.zero_grad()
    assert backward(model, rollouts, advantage_B, temperature=1.0, micro_batch=micro_batch) == pytest.approx(
        whole, rel=1e-5
    )
    assert torch.allclose(gradient(model), expected, rtol=1e-3, atol=1e-4)


def test_rollouts_without_advantage_are_skipped_but_stay_in_the_divisor(
    model: PreTrainedModel, rollouts: RolloutBatch
) -> None:
    advantage_B = torch.tensor([1.0, 0.0, 0.0, 0.0])
    loss = backward(model, rollouts, advantage_B, temperature=1.0, micro_batch=None)
    assert loss == pytest.approx(-naive_logp(model, rollouts, 0, 1.0).mean().item() / 4, rel=1e-5)


def test_without_any_advantage_there_is_no_gradient(model: PreTrainedModel, rollouts: RolloutBatch) -> None:
    assert backward(model, rollouts, torch.zeros(4), temperature=1.0, micro_batch=2) == 0.0
    assert all(parameter.grad is None for parameter in model.parameters())


def test_padding_tokens_carry_no_gradient(model: PreTrainedModel, rollouts: RolloutBatch) -> None:
    advantage_B = torch.tensor([1.0, -1.0, 0.5, 2.0])
    backward(model, rollouts, advantage_B, temperature=1.0, micro_batch=None)
    expected = gradient(model).clone()
    model.zero_grad()
    garbage = torch.where(rollouts.response_mask_BT, rollouts.response_ids_BT, 77)
    prompt_garbage = torch.where(rollouts.prompt_mask_PL, rollouts.prompt_ids_PL, 66)
    dirty = replace(rollouts, response_ids_BT=garbage, prompt_ids_PL=prompt_garbage)
    backward(model, dirty, advantage_B, temperature=1.0, micro_batch=None)
    assert torch.allclose(gradient(model), expected, rtol=1e-3, atol=1e-4)


def test_copies_of_a_response_are_scored_once_with_their_summed_advantage(rollouts: RolloutBatch) -> None:
    # rows 0 and 1 answer prompt 0, rows 2 and 3 prompt 1; the same tokens under another prompt are no copy
    ids = torch.tensor([[20, 1, 0, 0], [20, 1, 0, 0], [20, 1, 0, 0], [20, 1, 7, 7]])
    mask = torch.tensor([[1, 1, 0, 0]] * 4, dtype=torch.bool)
    copies = replace(rollouts, response_ids_BT=ids, response_mask_BT=mask)
    row_R, weight_R = distinct_rollouts(copies, torch.tensor([1.5, 0.5, -1.0, -2.0]))
    assert (row_R.tolist(), weight_R.tolist()) == ([0, 2], [2.0, -3.0])


def test_a_response_that_ended_is_no_copy_of_one_that_went_on(rollouts: RolloutBatch) -> None:
    ids = torch.tensor([[20, 1, 0, 0], [20, 1, 0, 0], [20, 1, 0, 0], [20, 1, 1, 0]])
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]], dtype=torch.bool)
    different = replace(rollouts, response_ids_BT=ids, response_mask_BT=mask)
    row_R, _ = distinct_rollouts(different, torch.tensor([1.0, 1.0, 1.0, 0.0]))
    assert sorted(row_R.tolist()) == [0, 1, 2]


def test_copies_change_neither_loss_nor_gradient(model: PreTrainedModel, rollouts: RolloutBatch) -> None:
    copies = replace(
        rollouts,
        response_ids_BT=rollouts.response_ids_BT[[0, 0, 3, 3]],
        response_mask_BT=rollouts.response_mask_BT[[0, 0, 3, 3]],
    )
    advantage_B = torch.tensor([1.5, -0.5, 0.25, 2.0])
    naive = -sum(advantage_B[row] * naive_logp(model, copies, row, 1.0).mean() for row in range(4)) / 4
    naive.backward()
    expected = gradient(model).clone()
    model.zero_grad()
    assert backward(model, copies, advantage_B, temperature=1.0, micro_batch=None) == pytest.approx(
        naive.item(), rel=1e-5
    )
    assert torch.allclose(gradient(model), expected, rtol=1e-3, atol=1e-4)
