from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from oversharp.trainers.model.layouts import Layout, PassInput, hidden_states, prompt_trees
from tests.trainers.runs import SIZES, gpt2, multiplied


@pytest.fixture(params=["rotary positions", "learned positions", "eager attention"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    """A model with large weights, so that a wrong mask or position changes its output."""
    if request.param == "learned positions":
        return multiplied(gpt2(60), 4)
    torch.manual_seed(0)
    made = Qwen3ForCausalLM(Qwen3Config(**{**SIZES, "vocab_size": 60}))
    made.set_attn_implementation("eager" if request.param == "eager attention" else "sdpa")
    return multiplied(made.eval(), 4)


def given(*, padded: bool) -> PassInput:
    """Three prompts, eight responses; some share a prefix, two are equal, one is a prefix of another."""
    generator = torch.Generator().manual_seed(0)
    response_RT = torch.randint(2, 5, (8, 5), generator=generator)
    response_RT[1] = response_RT[0]
    n_tokens_R = torch.tensor([5, 3, 5, 1, 4, 5, 2, 5] if padded else [5] * 8)
    starts_P = torch.tensor([2, 0, 3] if padded else [0, 0, 0])
    return PassInput(
        ids_PL=torch.randint(2, 60, (3, 6), generator=generator),
        mask_PL=torch.arange(6) >= starts_P[:, None],
        prompt_R=torch.tensor([0, 0, 0, 1, 1, 1, 1, 2]),
        response_RT=response_RT,
        mask_RT=torch.arange(5) < n_tokens_R[:, None],
    )


def one_by_one(model: PreTrainedModel, given: PassInput) -> torch.Tensor:
    """Return the states that predict each response token, one row at a time and without padding."""
    states = []
    for row, prompt in enumerate(given.prompt_R):
        prompt_ids = given.ids_PL[prompt][given.mask_PL[prompt]]
        response = given.response_RT[row][given.mask_RT[row]]
        states.append(model.base_model(torch.cat([prompt_ids, response])[None])[0][0, len(prompt_ids) - 1 : -1])
    return torch.cat(states)


def gradient(model: PreTrainedModel, states_ND: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    (states_ND * torch.linspace(-1, 1, states_ND.numel()).view_as(states_ND)).sum().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


@pytest.mark.slow
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("layout", ["rows", "tree", "packed"])
def test_every_layout_has_the_states_and_gradients_of_single_rows(
    model: PreTrainedModel, layout: Layout, padded: bool
) -> None:
    of_pass = given(padded=padded)
    expected = one_by_one(model, of_pass)
    states = hidden_states(model.base_model, model.config, of_pass, layout)
    assert float((states - expected).detach().abs().max() / expected.detach().abs().max()) < 2e-6
    expected_gradient = gradient(model, expected)
    difference = (gradient(model, states) - expected_gradient).abs().max() / expected_gradient.abs().max()
    assert float(difference) < 1e-5


def test_a_response_of_one_token_needs_only_the_prompt_as_input(model: PreTrainedModel) -> None:
    of_pass = PassInput(
        ids_PL=torch.tensor([[5, 6]]),
        mask_PL=torch.ones(1, 2, dtype=torch.bool),
        prompt_R=torch.tensor([0, 0]),
        response_RT=torch.tensor([[3], [4]]),
        mask_RT=torch.ones(2, 1, dtype=torch.bool),
    )
    expected = one_by_one(model, of_pass)
    for layout in ("rows", "tree", "packed"):
        torch.testing.assert_close(
            hidden_states(model.base_model, model.config, of_pass, layout), expected, rtol=1e-4, atol=1e-5
        )


def test_a_tree_has_every_prefix_once_and_attends_to_ancestors_only() -> None:
    trees = prompt_trees(
        PassInput(
            ids_PL=torch.tensor([[0, 9], [7, 8]]),
            mask_PL=torch.tensor([[False, True], [True, True]]),
            prompt_R=torch.tensor([0, 0, 1]),
            response_RT=torch.tensor([[3, 4, 1], [3, 5, 1], [3, 1, 0]]),
            mask_RT=torch.tensor([[True, True, True], [True, True, True], [True, True, False]]),
        )
    )
    assert trees.ids_PS.tolist() == [[0, 9, 3, 4, 5], [7, 8, 3, 0, 0]]
    assert trees.position_PS[0].tolist() == [0, 0, 1, 2, 2]
    # the last token of the second response: the prompt without padding, the common first token, itself
    assert trees.attend_PSS[0, 4].tolist() == [False, True, True, False, True]
    assert trees.slot_RT.tolist() == [[1, 2, 3], [1, 2, 4], [1, 2, 2]]
