from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from oversharp.trainers.model.head import LogitTransform, ResponseHead, chunked_logps, find_head
from tests.trainers.runs import SIZES, gpt2

MODELS: dict[str, tuple[Callable[[], PreTrainedModel], LogitTransform]] = {
    "plain": (lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES)), LogitTransform()),
    "capped": (lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, final_logit_softcapping=5.0)), LogitTransform(cap=5.0)),
    "divided": (lambda: GraniteForCausalLM(GraniteConfig(**SIZES, logits_scaling=8.0)), LogitTransform(scale=0.125)),
    "multiplied": (lambda: CohereForCausalLM(CohereConfig(**SIZES, logit_scale=0.07)), LogitTransform(scale=0.07)),
    "biased": (lambda: PhiForCausalLM(PhiConfig(**SIZES)), LogitTransform()),
    "learned positions": (lambda: gpt2(53), LogitTransform()),
}


@pytest.fixture(params=list(MODELS))
def model_and_transform(request: pytest.FixtureRequest) -> tuple[PreTrainedModel, LogitTransform]:
    torch.manual_seed(0)
    make, transform = MODELS[request.param]
    model = make().eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(8)  # large enough for a cap to have an effect
        if model.get_output_embeddings().bias is not None:
            model.get_output_embeddings().bias.normal_()
    return model, transform


def test_find_head_detects_the_transform_of_logits(model_and_transform: tuple[PreTrainedModel, LogitTransform]) -> None:
    model, transform = model_and_transform
    head = find_head(model)
    assert head is not None
    assert (head.transform.scale, head.transform.cap) == (pytest.approx(transform.scale, rel=1e-6), transform.cap)


@pytest.mark.slow
@pytest.mark.parametrize("logits_per_chunk", [1, 4 * 53, 1 << 24])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_chunks_give_the_values_and_gradients_of_all_logits(
    model_and_transform: tuple[PreTrainedModel, LogitTransform], temperature: float, logits_per_chunk: int
) -> None:
    model, _ = model_and_transform
    ids_BT = torch.randint(53, (3, 7), generator=torch.Generator().manual_seed(1))
    target_N = ids_BT[:, 1:].flatten()
    grad_logp_N, grad_entropy_N = torch.linspace(-1, 1, 18), torch.linspace(2, -1, 18)
    logp_NV = (model(ids_BT).logits[:, :-1].reshape(18, -1) / temperature).log_softmax(-1)
    expected_logp_N = logp_NV.gather(1, target_N[:, None])[:, 0]
    expected_entropy_N = -(logp_NV.exp() * logp_NV).sum(-1)
    (expected_logp_N @ grad_logp_N + expected_entropy_N @ grad_entropy_N).backward()
    expected = {
        name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    model.zero_grad()

    head = find_head(model)
    assert head is not None
    hidden_ND = head.trunk(ids_BT, use_cache=False)[0][:, :-1].reshape(18, -1)
    logp_N, entropy_N = chunked_logps(
        head, hidden_ND, target_N, temperature=temperature, logits_per_chunk=logits_per_chunk
    )
    torch.testing.assert_close(logp_N, expected_logp_N, rtol=1e-6, atol=2e-6)
    torch.testing.assert_close(entropy_N, expected_entropy_N, rtol=1e-6, atol=2e-6)
    (logp_N @ grad_logp_N + entropy_N @ grad_entropy_N).backward()
    scale = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, parameter in model.named_parameters():
        if name in expected:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=2e-5, atol=2e-6 * scale, msg=name)


@pytest.mark.parametrize("logits_per_chunk", [20, 1000])
def test_log_probabilities_without_entropies_are_bit_identical(logits_per_chunk: int) -> None:
    torch.manual_seed(0)
    head = ResponseHead(trunk=nn.Identity(), output=nn.Linear(4, 10), transform=LogitTransform(scale=0.5, cap=2.0))
    hidden_ND, target_N = torch.randn(9, 4, requires_grad=True), torch.arange(9)
    values = []
    for entropies in (True, False):
        hidden_ND.grad = None
        logp_N, entropy_N = chunked_logps(
            head, hidden_ND, target_N, temperature=0.7, entropies=entropies, logits_per_chunk=logits_per_chunk
        )
        assert (entropy_N is not None) == entropies
        logp_N.square().sum().backward()
        assert hidden_ND.grad is not None
        values.append(torch.cat([logp_N.detach()[:, None], hidden_ND.grad], dim=1))
    assert torch.equal(*values)


@pytest.mark.parametrize("transform", [LogitTransform(), LogitTransform(scale=0.5, cap=2.0)])
@pytest.mark.parametrize("rows", [2, 99])
def test_gradients_are_finite_differences(transform: LogitTransform, rows: int) -> None:
    from oversharp.trainers.model.head import _ChunkedLogps

    torch.manual_seed(0)
    hidden_ND = torch.randn(5, 4, requires_grad=True)
    weight_VD = torch.randn(7, 4, requires_grad=True)
    bias_V = torch.randn(7, requires_grad=True)
    target_N = torch.tensor([0, 6, 3, 3, 1])

    def total() -> torch.Tensor:
        logp_N, entropy_N = _ChunkedLogps.apply(
            hidden_ND, weight_VD, bias_V, target_N, transform, 0.8, rows, None, True
        )
        return (logp_N * torch.linspace(-1, 2, 5)).sum() + (entropy_N * torch.linspace(1, -1, 5)).sum()

    total().backward()
    step = 1e-2
    for leaf in (hidden_ND, weight_VD, bias_V):
        direction = torch.randn_like(leaf)
        with torch.no_grad():
            leaf += step * direction
            above = total()
            leaf -= 2 * step * direction
            below = total()
            leaf += step * direction
        assert leaf.grad is not None
        assert float((above - below) / (2 * step)) == pytest.approx(float((leaf.grad * direction).sum()), rel=5e-3)


def test_at_most_one_chunk_of_logits_exists_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import oversharp.trainers.model.head

    sizes = []
    made = oversharp.trainers.model.head._logits

    def counted(hidden_CD: torch.Tensor, *rest: object) -> torch.Tensor:
        logit_CV = made(hidden_CD, *rest)
        sizes.append(logit_CV.numel())
        return logit_CV

    monkeypatch.setattr(oversharp.trainers.model.head, "_logits", counted)
    head = ResponseHead(trunk=nn.Identity(), output=nn.Linear(4, 10), transform=LogitTransform())
    hidden_ND = torch.randn(9, 4, requires_grad=True)
    logp_N, _ = chunked_logps(head, hidden_ND, torch.zeros(9, dtype=torch.long), temperature=1.0, logits_per_chunk=40)
    logp_N.sum().backward()
    assert sizes == [40, 40, 10] * 2  # forward and backward pass


class Masked(Qwen3ForCausalLM):
    """Masks a token, so its logits are no transform of a linear layer."""

    def forward(self, *args: object, **settings: object) -> object:
        output = super().forward(*args, **settings)
        output.logits[..., 7] = -1e4
        return output


class Shifted(Qwen3ForCausalLM):
    """The input of its head is not the output of its trunk."""

    def forward(self, *args: object, **settings: object) -> object:
        output = super().forward(*args, **settings)
        output.logits = self.lm_head(self.model(*args, **settings)[0] * 2)
        return output


@pytest.mark.parametrize("kind", [Masked, Shifted])
def test_a_head_that_is_not_supported_is_not_found(kind: type[Qwen3ForCausalLM]) -> None:
    assert find_head(kind(Qwen3Config(**SIZES)).eval()) is None
