"""Products with one adapter equal those of vLLM, without a copy of the adapter for every token."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oversharp.diagnostics.samplers.vllm_worker import (
    product_with_adapter,
    replace_adapter_products,
    replace_linear_layers,
)
from tests.vllm_here import runs_or_must_run

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what vLLM imports
SEED = torch.Generator().manual_seed(0)


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=SEED)


def test_an_engine_for_several_adapters_is_refused() -> None:
    with pytest.raises(ValueError, match="weights of 2 adapters: an engine supports one"):
        product_with_adapter(numbers(1, 3), numbers(2, 4, 3), torch.tensor([0]), torch.float32)


@pytest.mark.slow
@pytest.mark.skipif(not runs_or_must_run(), reason="vLLM does not run here")
@pytest.mark.parametrize("name", ["shrink", "expand", "expand_slice"])
@pytest.mark.parametrize("by", ["bgmv", "sgmv"])
def test_the_products_equal_those_of_vllm(name: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.lora.ops import torch_ops
    from vllm.lora.punica_wrapper import punica_cpu

    for operation in ("shrink", "expand", "expand_slice"):
        for function in (f"bgmv_{operation}", f"sgmv_{operation}"):
            monkeypatch.setattr(punica_cpu, function, getattr(punica_cpu, function))  # restored after the test
    replace_adapter_products()
    inputs, weights = numbers(5, 3), numbers(1, 1, 4, 3)
    before = numbers(5, 9)
    if by == "bgmv":
        slots = [torch.zeros(5, dtype=torch.long)]
    else:
        slots = [torch.tensor([0, 2]), torch.tensor([2, 3]), torch.tensor([0, 0]), 2, 3, 5]
    rest = {"shrink": [0.5], "expand": [True], "expand_slice": [2, 4, True]}[name]
    actual = [inputs, weights, before.clone(), *slots, *rest]
    expected = [inputs, weights, before.clone(), *slots, *rest]
    getattr(punica_cpu, f"{by}_{name}")(*actual)
    getattr(torch_ops, f"{by}_{name}")(*expected)
    torch.testing.assert_close(actual[2], expected[2])
    assert not torch.equal(actual[2], before)
    assert getattr(punica_cpu, f"{by}_{name}") is not getattr(torch_ops, f"{by}_{name}")


@pytest.mark.slow
@pytest.mark.skipif(not runs_or_must_run(), reason="vLLM does not run here")
@pytest.mark.parametrize("asking", [(1, 1, 1, 1, 1), (1, 1, 0, 1, 1), (0, 0, 0, 0, 0)])
def test_a_layer_of_several_parts_equals_that_of_vllm(asking: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.lora.layers import LoRAMapping
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    inputs, before, widths = numbers(5, 8), numbers(5, 9), (6, 3)
    down, up = [numbers(1, 1, 2, 8) for _ in widths], [numbers(1, 1, width, 2) for width in widths]
    outputs = []
    for is_ours in (False, True):
        if is_ours:
            for name in ("update_metadata", "add_lora_linear"):
                monkeypatch.setattr(PunicaWrapperCPU, name, getattr(PunicaWrapperCPU, name))  # restored after the test
            replace_linear_layers(PunicaWrapperCPU)
        wrapper = PunicaWrapperCPU(16, 4, "cpu")
        mapping = LoRAMapping(index_mapping=asking, prompt_mapping=asking, is_prefill=True)
        wrapper.update_metadata(mapping, [1], 1, 100)
        outputs.append(before.clone())
        wrapper.add_lora_linear(outputs[-1], inputs, tuple(down), tuple(up), 0.5, widths)
    torch.testing.assert_close(outputs[1], outputs[0])
    assert [torch.equal(*rows) for rows in zip(outputs[1], before, strict=True)] == [not asked for asked in asking]
