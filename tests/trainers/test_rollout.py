from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from diagnostics.models import load_path
from trainers.rollout import RolloutBatch, draw_tokens, generate, generate_in_parts, uniform_noise

END, PAD = 1, 0


@pytest.fixture(scope="module")
def model(model_path: Path) -> PreTrainedModel:
    """Random weights, drawn wide, so that distributions are far from uniform; ends come often."""
    policy = load_path(model_path, device=torch.device("cpu"), dtype="float32").model
    with torch.no_grad():
        policy.get_input_embeddings().weight.mul_(2)
    return policy


def prompts(*rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([[PAD] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[False] * (longest - len(row)) + [True] * len(row) for row in rows])
    return ids, mask


def rollouts_of(
    model: PreTrainedModel, *rows: list[int], group: int, max_tokens: int = 8, temperature: float = 1.0, seed: int = 0
) -> RolloutBatch:
    ids, mask = prompts(*rows)
    noise = uniform_noise(seed, rows=len(rows) * group, max_tokens=max_tokens)
    # many end tokens: rows finish at different times, and the batch is compacted on the way
    return generate(model, ids, mask, noise, temperature=temperature, end_ids=range(1, 20), pad_id=PAD)


def test_tokens_are_drawn_by_their_probabilities() -> None:
    probability_V = torch.tensor([0.05, 0.0, 0.6, 0.35])
    n = 200_000
    uniform_B = torch.rand(n, generator=torch.Generator().manual_seed(0))
    token_B = draw_tokens(probability_V.log().expand(n, 4), uniform_B, 1.0)
    count = torch.bincount(token_B, minlength=4)
    assert count[1] == 0
    expected = probability_V * n
    chi_square = ((count - expected) ** 2 / expected.clamp(min=1e-9))[probability_V > 0].sum()
    assert chi_square < 13.8  # 0.1 % point of chi-square with 2 degrees of freedom


def test_the_temperature_sharpens_the_draw() -> None:
    n = 100_000
    uniform_B = torch.rand(n, generator=torch.Generator().manual_seed(0))
    token_B = draw_tokens(torch.tensor([[0.2, 0.8]]).log().expand(n, 2), uniform_B, 0.5)
    assert token_B.double().mean().item() == pytest.approx(0.64 / 0.68, abs=0.004)  # p^2 / sum p^2


def test_the_ends_of_the_noise_draw_possible_tokens() -> None:
    logits = torch.tensor([[0.0, 0.25, 0.5, 0.25, 0.0]]).log().expand(2, 5)
    assert draw_tokens(logits, torch.tensor([0.0, 1 - 2**-24]), 1.0).tolist() == [1, 3]


def test_sums_are_those_of_a_teacher_forced_pass(model: PreTrainedModel) -> None:
    rollouts = rollouts_of(model, [9, 10, 11], [12, 13, 14, 15, 16], group=5, temperature=0.7)
    for row in range(10):
        prompt = rollouts.prompt_ids_PL[row // 5][rollouts.prompt_mask_PL[row // 5]]
        response = rollouts.response_ids_BT[row][rollouts.response_mask_BT[row]]
        with torch.no_grad():
            logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        logp = logits.log_softmax(-1)  # temperature 1, whatever the sampling temperature
        assert rollouts.logp_sum_B[row].item() == pytest.approx(
            logp.gather(1, response[:, None]).sum().item(), abs=1e-4
        )
        assert rollouts.entropy_sum_B[row].item() == pytest.approx(-(logp.exp() * logp).sum().item(), abs=1e-4)


def test_left_padding_changes_nothing(model: PreTrainedModel) -> None:
    alone = rollouts_of(model, [9, 10, 11], group=4)
    padded = rollouts_of(model, [9, 10, 11], [12, 13, 14, 15, 16, 17], group=4)
    assert torch.equal(alone.response_ids_BT, padded.response_ids_BT[:4])
    assert torch.allclose(alone.logp_sum_B, padded.logp_sum_B[:4], atol=1e-4)


def test_a_row_does_not_depend_on_the_rows_beside_it(model: PreTrainedModel) -> None:
    ids, mask = prompts([9, 10, 11], [20, 30, 40], [9, 50, 60])
    noise = uniform_noise(0, rows=12, max_tokens=8)
    arguments = {"temperature": 1.0, "end_ids": range(1, 20), "pad_id": PAD}
    whole = generate(model, ids, mask, noise, **arguments)
    parts = generate_in_parts(model, ids, mask, noise, prompts_per_part=1, **arguments)
    assert torch.equal(whole.response_ids_BT, parts.response_ids_BT)
    assert torch.equal(whole.response_mask_BT, parts.response_mask_BT)


def test_a_response_stops_with_its_end_token_or_at_the_limit(model: PreTrainedModel) -> None:
    rollouts = rollouts_of(model, [9, 10, 11], [20, 30, 40], group=32, max_tokens=6)
    lengths = rollouts.n_tokens_B.tolist()
    assert len(set(lengths)) > 2
    for ids, length, truncated in zip(
        rollouts.response_ids_BT.tolist(), lengths, rollouts.truncated_B.tolist(), strict=True
    ):
        ended = [position for position, token in enumerate(ids[:length]) if 1 <= token < 20]
        assert ended == ([] if truncated else [length - 1])
        assert set(ids[length:]) <= {PAD}
    assert rollouts.truncated_B.any()
    assert not rollouts.truncated_B.all()


def test_the_seed_reaches_the_sampler(model: PreTrainedModel) -> None:
    first, again, other = (rollouts_of(model, [9, 10, 11], group=16, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.response_ids_BT, again.response_ids_BT)
    assert not torch.equal(first.response_ids_BT, other.response_ids_BT)


def test_rollouts_of_one_group_differ(model: PreTrainedModel) -> None:
    rollouts = rollouts_of(model, [9, 10, 11], group=16)
    assert len({tuple(row) for row in rollouts.response_ids_BT.tolist()}) > 8
