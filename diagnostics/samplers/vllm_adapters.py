"""Products with one LoRA adapter on a CPU, in place of vLLM's, which copy the adapter's weights once for every token.

vLLM's CPU build gathers ``weights[index_of_token]`` before it multiplies: with SmolLM2-135M, rank 16 and 256 responses
that is gigabytes a step, and most of its time. Our engines hold room for one adapter (``max_loras=1``), so that one
matrix product does.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


def product_with_adapter(
    input_TI: Float[Tensor, "token input"],
    weight_1OI: Float[Tensor, "1 output input"] | Float[Tensor, "1 1 output input"],
    slot_T: Int[Tensor, " token"],
    dtype: torch.dtype,
) -> Float[Tensor, "token output"]:
    """Each token's input times the adapter's weights, in ``dtype``; 0 where the slot is -1, which asks for no adapter.

    Raises ``ValueError`` for the weights of several adapters.

    >>> product_with_adapter(torch.ones(2, 3), torch.ones(1, 2, 3), torch.tensor([0, -1]), torch.float32)
    tensor([[3., 3.],
            [0., 0.]])
    """
    if len(weight_1OI) != 1:
        raise ValueError(f"weights of {len(weight_1OI)} adapters: an engine has room for one")
    weight_OI = weight_1OI.reshape(weight_1OI.shape[-2:]).to(dtype)
    output_TO = input_TI.to(dtype) @ weight_OI.T
    asked_T = slot_T >= 0
    return output_TO if bool(asked_T.all()) else output_TO * asked_T[:, None]


def replace_adapter_products() -> None:
    """From now on this process's vLLM multiplies so. Its punica wrapper looks these functions up by name."""
    from vllm.lora.punica_wrapper import punica_cpu

    def per_token(slot_B: Tensor, n_tokens_B: Tensor) -> Tensor:
        return torch.repeat_interleave(slot_B, n_tokens_B)

    def shrink(inputs: Tensor, weights: Tensor, output: Tensor, slots: Tensor, scaling: float = 1.0) -> None:
        found = product_with_adapter(inputs, weights, slots, output.dtype)
        output[:, : found.shape[1]] = scaling * found

    def expand(inputs: Tensor, weights: Tensor, output: Tensor, slots: Tensor, add_inputs: bool = True) -> None:
        width = min(weights.shape[-2], output.shape[1])  # adapter and model may be padded differently
        expand_slice(inputs, weights, output, slots, 0, width, add_inputs)

    def expand_slice(
        inputs: Tensor, weights: Tensor, output: Tensor, slots: Tensor, start: int, size: int, add_inputs: bool = True
    ) -> None:
        found = product_with_adapter(inputs, weights, slots, output.dtype)[:, :size]
        if add_inputs:
            output[:, start : start + size] += found
        else:
            output[:, start : start + size] = found

    def of_sequences(by_token: Any) -> Any:
        def by_sequence(
            inputs: Tensor,
            weights: Tensor,
            output: Tensor,
            _start_B: Tensor,
            n_tokens_B: Tensor,
            slot_B: Tensor,
            _batches: int,
            _longest: int,
            _tokens: int,
            *rest: Any,
        ) -> None:
            by_token(inputs, weights, output, per_token(slot_B, n_tokens_B), *rest)

        return by_sequence

    for name, by_token in (("shrink", shrink), ("expand", expand), ("expand_slice", expand_slice)):
        setattr(punica_cpu, f"bgmv_{name}", by_token)
        setattr(punica_cpu, f"sgmv_{name}", of_sequences(by_token))
