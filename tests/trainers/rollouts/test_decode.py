from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from scipy.stats import chisquare
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM, PreTrainedModel

from diagnostics.models.load import load_path
from trainers.batch import RolloutBatch
from trainers.rollouts.decode import DecodingLaw, GrowingReader, Reader, Slots, draw_tokens, generate, uniform_noise
from trainers.rollouts.static_decode import FixedReader

PAD = 0
PLAIN = DecodingLaw(temperature=1.0)


@pytest.fixture(scope="module")
def policy(model_path: Path) -> PreTrainedModel:
    """Random weights, drawn wide, so that distributions are far from uniform; ends come often."""
    model = load_path(model_path, device=torch.device("cpu"), dtype="float32").model
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(2)
    return model


@pytest.fixture(scope="module")
def memory() -> PreTrainedModel:
    """Another architecture, smaller, with positions that are learned."""
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=107, n_positions=32, n_embd=24, n_layer=2, n_head=2)).eval()
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
    law: DecodingLaw = PLAIN,
    seed: int = 0,
    static: bool = False,
) -> RolloutBatch:
    ids, mask = padded(*rows)
    noise = uniform_noise(seed, rows=len(rows) * group, max_tokens=max_tokens)
    readers: list[Reader] = [FixedReader(model, graphs=False) if static else GrowingReader(model) for model in models]
    # many end tokens: rows finish at different times, and the batch is compacted on the way
    return generate(readers, ids, mask, noise, law=law, end_ids=range(1, 20), pad_id=PAD)


@torch.no_grad()
def next_logits(model: PreTrainedModel, prefix: list[int]) -> torch.Tensor:
    """The whole prefix anew, alone, without a cache."""
    return model(torch.tensor([prefix]), use_cache=False).logits[0, -1].double()


LAWS = [
    DecodingLaw(temperature=1.0),
    DecodingLaw(temperature=0.7),
    DecodingLaw(temperature=1.0, mu=0.5),
    DecodingLaw(temperature=1.3, mu=0.9),
]


@pytest.mark.parametrize("static", [False, True], ids=["growing", "fixed"])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_log_probabilities_are_those_of_a_pass_over_the_whole_text_for_every_token(
    policy: PreTrainedModel, memory: PreTrainedModel, law: DecodingLaw, static: bool
) -> None:
    models = [policy, memory] if law.mu else [policy]
    rollouts = rollouts_of(models, [9, 10, 11], [12, 13, 14, 15, 16], group=6, law=law, static=static)
    assert len(set(rollouts.n_tokens_B.tolist())) > 2
    for row in range(12):
        prompt = rollouts.prompt_ids_PL[row // 6][rollouts.prompt_mask_PL[row // 6]].tolist()
        response = rollouts.response_ids_BT[row][rollouts.response_mask_BT[row]].tolist()
        logp_sum = entropy_sum = 0.0
        for place, token in enumerate(response):
            prefix = prompt + response[:place]
            own = next_logits(policy, prefix)
            scores = own - law.mu * next_logits(memory, prefix) if law.mu else own
            behaviour = (scores / law.temperature).log_softmax(-1)[token].item()
            assert rollouts.behaviour_logp_BT[row, place].item() == pytest.approx(behaviour, abs=1e-5)
            logp = own.log_softmax(-1)
            logp_sum += logp[token].item()
            entropy_sum -= (logp.exp() * logp).sum().item()
        assert rollouts.behaviour_logp_BT[row, len(response) :].tolist() == [0.0] * (8 - len(response))
        assert rollouts.logp_sum_B[row].item() == pytest.approx(logp_sum, abs=2e-5)
        assert rollouts.entropy_sum_B[row].item() == pytest.approx(entropy_sum, abs=2e-5)


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_tokens_follow_the_law(policy: PreTrainedModel, memory: PreTrainedModel, mu: float) -> None:
    n, prompt, law = 20_000, [9, 10, 11], DecodingLaw(temperature=0.8, mu=mu)
    rollouts = rollouts_of([policy, memory][: 2 if mu else 1], prompt, group=n, max_tokens=2, law=law)

    def law_after(prefix: list[int]) -> torch.Tensor:
        return ((next_logits(policy, prefix) - mu * next_logits(memory, prefix)) / 0.8).softmax(-1)

    first = law_after(prompt)
    second = sum(first[token] * law_after([*prompt, token]) for token in range(107) if not 1 <= token < 20)
    for place, expected in enumerate((first, second)):
        tokens = rollouts.response_ids_BT[:, place][rollouts.response_mask_BT[:, place]]
        count = torch.bincount(tokens, minlength=107).double()
        count = torch.cat([count, n - count.sum()[None]])  # those that ended before
        expected = torch.cat([expected * n, n - expected.sum()[None] * n])
        rare = expected < 5
        bins = [torch.cat([one[~rare], one[rare].sum()[None]]) for one in (count, expected)]
        kept = bins[1] > 1e-6
        assert chisquare(bins[0][kept].numpy(), bins[1][kept].numpy(), sum_check=False).pvalue > 1e-3


def test_the_likeliest_tokens_are_those_of_a_pass_over_the_whole_text(policy: PreTrainedModel) -> None:
    law = DecodingLaw(temperature=0.0)
    rollouts = rollouts_of([policy], [9, 10, 11], [20, 30, 40, 50], group=1, law=law)
    for row, prompt in enumerate(([9, 10, 11], [20, 30, 40, 50])):
        response = rollouts.response_ids_BT[row][rollouts.response_mask_BT[row]].tolist()
        for place, token in enumerate(response):
            assert token == next_logits(policy, prompt + response[:place]).argmax().item()
    assert not rollouts.behaviour_logp_BT.any()


def test_a_memory_equal_to_the_policy_flattens_it(policy: PreTrainedModel) -> None:
    ours = rollouts_of([policy, policy], [9, 10, 11], group=64, law=DecodingLaw(temperature=1.0, mu=0.5))
    flat = rollouts_of([policy], [9, 10, 11], group=64, law=DecodingLaw(temperature=2.0))  # f − f/2 = f/2
    assert torch.equal(ours.response_ids_BT, flat.response_ids_BT)
    assert torch.allclose(ours.behaviour_logp_BT, flat.behaviour_logp_BT, atol=1e-5)


def test_left_padding_changes_nothing(policy: PreTrainedModel) -> None:
    alone = rollouts_of([policy], [9, 10, 11], group=4)
    together = rollouts_of([policy], [9, 10, 11], [12, 13, 14, 15, 16, 17], group=4)
    assert torch.equal(alone.response_ids_BT, together.response_ids_BT[:4])
    assert torch.allclose(alone.logp_sum_B, together.logp_sum_B[:4], atol=1e-4)


def test_a_response_stops_with_its_end_token_or_at_the_limit(policy: PreTrainedModel) -> None:
    rollouts = rollouts_of([policy], [9, 10, 11], [20, 30, 40], group=32, max_tokens=6)
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


def test_the_seed_reaches_the_sampler(policy: PreTrainedModel) -> None:
    first, again, other = (rollouts_of([policy], [9, 10, 11], group=16, seed=seed) for seed in (0, 0, 1))
    assert all(
        torch.equal(getattr(first, field.name), getattr(again, field.name))
        for field in dataclasses.fields(first)
        if field.name != "group_size"
    )
    assert not torch.equal(first.response_ids_BT, other.response_ids_BT)


def test_rollouts_of_one_group_differ(policy: PreTrainedModel) -> None:
    rollouts = rollouts_of([policy], [9, 10, 11], group=16)
    assert len({tuple(row) for row in rollouts.response_ids_BT.tolist()}) > 8


def test_a_sliding_window_is_respected() -> None:
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=107,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        sliding_window=3,
    )
    model = MistralForCausalLM(config).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(40)
    rollouts = rollouts_of([model], [30, 31, 32, 33, 34], group=6)
    for row in range(6):
        response = rollouts.response_ids_BT[row][rollouts.response_mask_BT[row]].tolist()
        for place, token in enumerate(response):
            logp = next_logits(model, [30, 31, 32, 33, 34, *response[:place]]).log_softmax(-1)[token].item()
            assert rollouts.behaviour_logp_BT[row, place].item() == pytest.approx(logp, abs=1e-5)


def test_what_was_said_by_several_rows_is_computed_once(policy: PreTrainedModel) -> None:
    widths = []

    class Watched(GrowingReader):
        def step(self, token_S: torch.Tensor) -> torch.Tensor:
            widths.append(len(token_S))
            return super().step(token_S)

    ids, mask = padded([9, 10, 11])
    noise = torch.full((6, 3), 0.5)
    noise[0, 0] = 0.001  # one row goes another way at the first token, one at the second
    noise[1, 1] = 0.001
    generate([Watched(policy)], ids, mask, noise, law=PLAIN, end_ids=[106], pad_id=PAD)
    assert widths == [2, 3]


def draw_two(logits: torch.Tensor, uniform: torch.Tensor, temperature: float) -> torch.Tensor:
    slot = torch.zeros(len(uniform), dtype=torch.long)
    return draw_tokens([logits[None]], DecodingLaw(temperature=temperature), uniform, slot).token_R


def test_tokens_are_drawn_by_their_probabilities() -> None:
    probability_V = torch.tensor([0.05, 0.0, 0.6, 0.35])
    n = 200_000
    uniform_B = torch.rand(n, generator=torch.Generator().manual_seed(0))
    count = torch.bincount(draw_two(probability_V.log(), uniform_B, 1.0), minlength=4)
    assert count[1] == 0
    expected = probability_V * n
    chi_square = ((count - expected) ** 2 / expected.clamp(min=1e-9))[probability_V > 0].sum()
    assert chi_square < 13.8  # 0.1 % point of chi-square with 2 degrees of freedom


def test_the_temperature_sharpens_the_draw() -> None:
    uniform_B = torch.rand(100_000, generator=torch.Generator().manual_seed(0))
    token_B = draw_two(torch.tensor([0.2, 0.8]).log(), uniform_B, 0.5)
    assert token_B.double().mean().item() == pytest.approx(0.64 / 0.68, abs=0.004)  # p^2 / sum p^2


def test_the_ends_of_the_noise_draw_possible_tokens() -> None:
    logits = torch.tensor([0.0, 0.25, 0.5, 0.25, 0.0]).log()
    assert draw_two(logits, torch.tensor([0.0, 1 - 2**-24]), 1.0).tolist() == [1, 3]


def test_impossible_tokens_leave_the_entropy_a_number() -> None:
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


def test_without_sharing_every_row_has_a_slot_and_the_shapes_are_few() -> None:
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
