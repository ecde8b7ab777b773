"""Products with one LoRA adapter on a CPU, replacing vLLM's, which copy the adapter's weights for every token.

vLLM's CPU build gathers ``weights[index_of_token]`` before it multiplies: with SmolLM2-135M, rank 16 and 256 responses
that is gigabytes per step, and most of the step's time. Our engines have one adapter (``max_loras=1``), so two matrix
products per layer suffice, with the intermediate rounded to the model's precision as in PEFT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional


def product_with_adapter(
    input_TI: Float[Tensor, "token input"],
    weight_1OI: Float[Tensor, "1 output input"] | Float[Tensor, "1 1 output input"],
    slot_T: Int[Tensor, " token"],
    dtype: torch.dtype,
) -> Float[Tensor, "token output"]:
    """Return each token's input times the adapter's weights, in ``dtype``.

    0 for slot -1 (no adapter).

    Raises ``ValueError`` for the weights of several adapters.

    >>> product_with_adapter(torch.ones(2, 3), torch.ones(1, 2, 3), torch.tensor([0, -1]), torch.float32)
    tensor([[3., 3.],
            [0., 0.]])
    """
    if len(weight_1OI) != 1:
        raise ValueError(f"weights of {len(weight_1OI)} adapters: an engine supports one")
    weight_OI = weight_1OI.reshape(weight_1OI.shape[-2:]).to(dtype)
    output_TO = input_TI.to(dtype) @ weight_OI.T
    asked_T = slot_T >= 0
    return output_TO if bool(asked_T.all()) else output_TO * asked_T[:, None]


def add_adapter(
    output_TO: Float[Tensor, "token output"],
    input_TI: Float[Tensor, "token input"],
    down: Sequence[Float[Tensor, "rank input"]],
    up: Sequence[Float[Tensor, "part rank"]],
    widths: Sequence[int],
    asked_T: Bool[Tensor, " token"] | None = None,
    scale: float = 1.0,
) -> None:
    """Add each adapter part's product with the input to its part of ``output_TO``, of these widths.

    ``asked_T`` marks the tokens that use the adapter, None: all.

    >>> output_TO = torch.zeros(2, 3)
    >>> down, up = [torch.ones(1, 2), 2 * torch.ones(1, 2)], [torch.ones(1, 1), torch.ones(2, 1)]
    >>> add_adapter(output_TO, torch.ones(2, 2), down, up, (1, 2), torch.tensor([True, False]))
    >>> output_TO
    tensor([[2., 4., 4.],
            [0., 0., 0.]])
    """
    down_RI = (down[0] if len(down) == 1 else torch.cat(list(down))).to(input_TI.dtype)
    middle_TR = functional.linear(input_TI, down_RI)
    if asked_T is not None:
        middle_TR = middle_TR * asked_T[:, None]
    start = 0
    for part_TR, up_PR, width in zip(middle_TR.split([len(item) for item in down], dim=1), up, widths, strict=True):
        used = min(width, len(up_PR))  # adapter and model may be padded differently
        part = output_TO[:, start : start + used]
        part.addmm_(part_TR, up_PR[:used].T.to(part_TR.dtype), alpha=scale)
        start += width


def replace_adapter_products() -> None:
    """Install these products in this process's vLLM, whose punica wrapper looks the functions up by name."""
    from vllm.lora.punica_wrapper import punica_cpu

    replace_linear_layers(punica_cpu.PunicaWrapperCPU)

    def per_token(slot_B: Tensor, n_tokens_B: Tensor) -> Tensor:
        return torch.repeat_interleave(slot_B, n_tokens_B)

    def shrink(inputs: Tensor, weights: Tensor, output: Tensor, slots: Tensor, scaling: float = 1.0) -> None:
        product = product_with_adapter(inputs, weights, slots, output.dtype)
        output[:, : product.shape[1]] = scaling * product

    def expand(inputs: Tensor, weights: Tensor, output: Tensor, slots: Tensor, add_inputs: bool = True) -> None:
        width = min(weights.shape[-2], output.shape[1])  # adapter and model may be padded differently
        expand_slice(inputs, weights, output, slots, 0, width, add_inputs)

    def expand_slice(
        inputs: Tensor, weights: Tensor, output: Tensor, slots: Tensor, start: int, size: int, add_inputs: bool = True
    ) -> None:
        product = product_with_adapter(inputs, weights, slots, output.dtype)[:, :size]
        if add_inputs:
            output[:, start : start + size] += product
        else:
            output[:, start : start + size] = product

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


def replace_linear_layers(wrapper: Any) -> None:
    """Install products that compute all parts of a layer at once, and look up the adapter's tokens once per step."""
    update = wrapper.update_metadata

    def update_metadata(self: Any, *args: Any, **kwargs: Any) -> None:
        update(self, *args, **kwargs)
        asked_T = self.token_lora_indices >= 0
        self.oversharp_asked = None if bool(asked_T.all()) else asked_T.clone()

    def add_lora_linear(
        self: Any,
        output: Tensor,
        inputs: Tensor,
        down: Sequence[Tensor],
        up: Sequence[Tensor],
        scale: float,
        widths: Sequence[int],
        **_kwargs: Any,
    ) -> None:
        asked_T = self.oversharp_asked
        if asked_T is not None and not bool(asked_T.any()):
            return
        if any(len(item) != 1 for item in down):
            raise ValueError(f"weights of {len(down[0])} adapters: an engine supports one")
        add_adapter(
            output.view(-1, output.shape[-1]),
            inputs.view(-1, inputs.shape[-1]),
            [entry[0, 0] for entry in down],
            [element[0, 0] for element in up],
            widths,
            asked_T,
            scale,
        )

    wrapper.oversharp_asked = None  # before the first step all tokens use the adapter
    wrapper.update_metadata, wrapper.add_lora_linear = update_metadata, add_lora_linear
