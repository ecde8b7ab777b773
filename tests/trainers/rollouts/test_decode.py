from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM, PreTrainedModel

from oversharp.trainers.batch import RolloutBatch
from oversharp.trainers.rollouts.decode import (
    Decoder,
    FixedDecoder,
    GrowingDecoder,
    Slots,
    TokenDistribution,
    draw_tokens,
    generate,
    uniform_noise,
)
from tests.trainers.batches import check_ends, p_value, text_of
from tests.trainers.runs import SIZES, gpt2, loaded_from

PAD = 0
PLAIN = TokenDistribution(temperature=1.0)


@pytest.fixture(scope="module")
def policy(model_path: Path) -> PreTrainedModel:
    """A model with large random weights, so that distributions are far from uniform; with many end tokens."""
    model = loaded_from(model_path).model
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(2)
    return model


@pytest.fixture(scope="module")
def memory() -> PreTrainedModel:
    """A smaller model of another architecture, with learned positions."""
    model = gpt2(seed=1)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(30)
    return model


def padded(*rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([[PAD] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[False] * (longest - len(row)) + [True] * len(row) for row in rows])
    return ids, mask


def rollouts_of(
    models: Sequence[PreTrainedModel],
    *rows: list[int],
    group: int,
    max_tokens: int = 8,
    distribution: TokenDistribution = PLAIN,
    seed: int = 0,
    static: bool = False,
) -> RolloutBatch:
    ids, mask = padded(*rows)
    noise = uniform_noise(seed, rows=len(rows) * group, max_tokens=max_tokens)
    decoders: list[Decoder] = [
        FixedDecoder(model, graphs=False) if static else GrowingDecoder(model) for model in models
    ]
    # many end tokens, so that rows end at different steps and the batch is compacted
    return generate(decoders, ids, mask, noise, distribution=distribution, end_ids=range(1, 20), pad_id=PAD)


@torch.no_grad()
def next_logits(model: PreTrainedModel, prefix: list[int]) -> torch.Tensor:
    """Return the logits after a single prefix, without a cache."""
    return model(torch.tensor([prefix]), use_cache=False).logits[0, -1].double()


DISTRIBUTIONS = [
    TokenDistribution(temperature=1.0),
    TokenDistribution(temperature=0.7),
    TokenDistribution(temperature=1.0, mu=0.5),
    TokenDistribution(temperature=1.3, mu=0.9),
]


@pytest.mark.slow
@pytest.mark.parametrize("static", [False, True], ids=["growing", "fixed"])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_log_probabilities_are_those_of_a_pass_over_the_whole_text_for_every_token(
    policy: PreTrainedModel, memory: PreTrainedModel, distribution: TokenDistribution, static: bool
) -> None:
    models = [policy, memory] if distribution.mu else [policy]
    rollouts = rollouts_of(models, [9, 10, 11], [12, 13, 14, 15, 16], group=6, distribution=distribution, static=static)
    assert len(set(rollouts.n_tokens_B.tolist())) > 2
    check_every_token(rollouts, models, distribution)


def check_every_token(
    rollouts: RolloutBatch, models: Sequence[PreTrainedModel], distribution: TokenDistribution
) -> None:
    """Compare with a pass over the whole prefix of each token."""
    for row, (prompt, response) in enumerate(texts_of(rollouts)):
        logp_sum = entropy_sum = 0.0
        for place, token in enumerate(response):
            own, *others = (next_logits(model, prompt + response[:place]) for model in models)
            scores = own - distribution.mu * others[0] if others else own
            behaviour = (scores / distribution.temperature).log_softmax(-1)[token].item()
            assert rollouts.behaviour_logp_BT[row, place].item() == pytest.approx(behaviour, abs=1e-5)
            logp = own.log_softmax(-1)
            logp_sum += logp[token].item()
            entropy_sum -= (logp.exp() * logp).sum().item()
        assert not rollouts.behaviour_logp_BT[row, len(response) :].any()
        assert rollouts.logp_sum_B[row].item() == pytest.approx(logp_sum, abs=2e-5)
        assert rollouts.entropy_sum_B[row].item() == pytest.approx(entropy_sum, abs=2e-5)


def texts_of(rollouts: RolloutBatch) -> list[tuple[list[int], list[int]]]:
    """Return prompt and response of every row."""
    texts = [text_of(rollouts, row) for row in range(len(rollouts.truncated_B))]
    return [(prompt.tolist(), response.tolist()) for prompt, response in texts]


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_tokens_follow_the_distribution(policy: PreTrainedModel, memory: PreTrainedModel, mu: float) -> None:
    n, prompt, distribution = 20_000, [9, 10, 11], TokenDistribution(temperature=0.8, mu=mu)
    rollouts = rollouts_of([policy, memory][: 2 if mu else 1], prompt, group=n, max_tokens=2, distribution=distribution)

    def distribution_after(prefix: list[int]) -> torch.Tensor:
        return ((next_logits(policy, prefix) - mu * next_logits(memory, prefix)) / 0.8).softmax(-1)

    first = distribution_after(prompt)
    second = sum(first[token] * distribution_after([*prompt, token]) for token in range(107) if not 1 <= token < 20)
    for place, expected in enumerate((first, second)):
        tokens = rollouts.response_ids_BT[:, place][rollouts.response_mask_BT[:, place]]
        count = torch.bincount(tokens, minlength=107).double()
        count = torch.cat([count, n - count.sum()[None]])  # rows that ended before
        expected = torch.cat([expected * n, n - expected.sum()[None] * n])
        assert p_value(count, expected) > 1e-3


def test_greedy_tokens_are_those_of_a_pass_over_the_whole_text(policy: PreTrainedModel) -> None:
    distribution = TokenDistribution(temperature=0.0)
    rollouts = rollouts_of([policy], [9, 10, 11], [20, 30, 40, 50], group=1, distribution=distribution)
    for prompt, response in texts_of(rollouts):
        for place, token in enumerate(response):
            assert token == next_logits(policy, prompt + response[:place]).argmax().item()
    assert not rollouts.behaviour_logp_BT.any()


def test_a_response_stops_with_its_end_token_or_at_the_limit(policy: PreTrainedModel) -> None:
    rollouts = rollouts_of([policy], [9, 10, 11], [20, 30, 40], group=32, max_tokens=6)
    assert len(set(rollouts.n_tokens_B.tolist())) > 2
    check_ends(rollouts, range(1, 20))
    assert set(rollouts.response_ids_BT[~rollouts.response_mask_BT].tolist()) == {PAD}


def test_the_seed_reaches_the_sampler(policy: PreTrainedModel) -> None:
    first, again, other = (rollouts_of([policy], [9, 10, 11], group=16, seed=seed) for seed in (0, 0, 1))
    assert all(
        torch.equal(getattr(first, field.name), getattr(again, field.name))
        for field in dataclasses.fields(first)
        if field.name != "group_size"
    )
    assert not torch.equal(first.response_ids_BT, other.response_ids_BT)
    assert len({tuple(row) for row in first.response_ids_BT.tolist()}) > 8  # rollouts of one group differ


def test_a_sliding_window_is_respected() -> None:
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**{**SIZES, "vocab_size": 107}, sliding_window=3)).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(40)
    check_every_token(rollouts_of([model], [30, 31, 32, 33, 34], group=6), [model], PLAIN)


def test_shared_prefixes_are_computed_once(policy: PreTrainedModel) -> None:
    widths = []

    class Watched(GrowingDecoder):
        def step(self, token_S: torch.Tensor) -> torch.Tensor:
            widths.append(len(token_S))
            return super().step(token_S)

    ids, mask = padded([9, 10, 11])
    noise = torch.full((6, 3), 0.5)
    noise[0, 0] = 0.001  # one row differs from the first token on, one from the second
    noise[1, 1] = 0.001
    generate([Watched(policy)], ids, mask, noise, distribution=PLAIN, end_ids=[106], pad_id=PAD)
    assert widths == [2, 3]


def test_noise_of_0_and_almost_1_samples_possible_tokens() -> None:
    logits, slot = torch.tensor([[0.0, 0.25, 0.5, 0.25, 0.0]]).log(), torch.zeros(2, dtype=torch.long)
    assert draw_tokens([logits], PLAIN, torch.tensor([0.0, 1 - 2**-24]), slot).token_R.tolist() == [1, 3]


def test_the_entropy_is_finite_with_impossible_tokens() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 0.0]])
    draw = draw_tokens([logits], PLAIN, torch.tensor([0.7]), torch.tensor([0]))
    assert draw.entropy_R.item() == pytest.approx(0.6931472)
    assert draw.logp_R.item() == pytest.approx(-0.6931472)


def test_rows_keep_their_slots_until_a_tenth_is_empty() -> None:
    slots = Slots(n_rows=12, n_vocabulary=20, shared=True)
    parent, slot, token = slots.arrange(torch.tensor([0, 0, 1, 1]), torch.tensor([5, 5, 6, 7]))
    assert parent is not None
    assert (parent.tolist(), slot.tolist(), token.tolist()) == ([0, 1, 1], [0, 0, 1, 2], [5, 6, 7])
    parent, slot, _ = slots.arrange(torch.zeros(12, dtype=torch.long), torch.arange(12))
    assert parent is not None
    assert slot.tolist() == list(range(12))
    parent, slot, token = slots.arrange(slot[1:], torch.full((11,), 3))
    assert parent is None
    assert (slot.tolist(), token.tolist()) == (list(range(1, 12)), [0] + [3] * 11)
    parent, slot, token = slots.arrange(slot[1:], torch.full((10,), 4))
    assert parent is not None
    assert (parent.tolist(), slot.tolist(), token.tolist()) == (list(range(2, 12)), list(range(10)), [4] * 10)


def test_without_sharing_every_row_has_a_slot_and_few_shapes_occur() -> None:
    slots = Slots(n_rows=8, n_vocabulary=10, shared=False)
    parent, slot, token = slots.arrange(torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([5, 5, 5, 6, 6, 6]))
    assert parent is not None
    assert (parent.tolist(), slot.tolist()) == ([0, 0, 0, 1, 1, 1, 0, 0], [0, 1, 2, 3, 4, 5])
    parent, slot, token = slots.arrange(slot[:5], torch.tensor([1, 2, 3, 4, 5]))
    assert parent is None
    assert token.tolist() == [1, 2, 3, 4, 5, 0, 0, 0]
    parent, slot, token = slots.arrange(slot[[1, 4, 3]], torch.tensor([7, 8, 9]))
    assert parent is not None
    assert (parent.tolist(), slot.tolist(), token.tolist()) == ([1, 4, 3, 0], [0, 1, 2], [7, 8, 9, 0])
