"""Additional methods for vLLM's worker, called by name through ``collective_rpc``.

vLLM mixes ``WorkerExtension`` into its worker class. Functions import vLLM only when they run, so that importing this
module is fast.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from oversharp.diagnostics.models.devices import elements_per_chunk
from oversharp.diagnostics.records.memory import trim_heap

#: Elements of a (row, vocabulary) table for which the entropy is computed at a time on a CPU, to stay in its cache.
_ELEMENTS_PER_CHUNK = 1 << 18
#: Smallest log-probability in the entropy's sum. Its exp is 0 in every precision.
_LEAST_LOGP = -1e4
_NORMS = ("rms_norm", "fused_add_rms_norm")
#: The fused norm kernels require a multiple of this size, in any precision.
_AT_ONCE = 32


class WorkerExtension:
    """Additional methods of vLLM's worker."""

    model_runner: Any

    def oversharp_repack_tied_heads(self) -> int:
        """Repack the output head on a CPU, and return the number of heads.

        vLLM's CPU build computes logits from a packed copy of the head. Reloading weights repacks only the tensors in
        the files. A tied head is not in the files, so its packed copy would silently keep the old weights.
        """
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
        from vllm.platforms import current_platform

        if not current_platform.is_cpu():
            return 0
        heads = [module for module in self.model_runner.get_model().modules() if isinstance(module, ParallelLMHead)]
        for head in heads:
            head.quant_method.process_weights_after_loading(head)
        return len(heads)

    def oversharp_empty_cache(self) -> int:
        """Release the memory of the KV cache on a CPU, and return its size in bytes.

        The memory is allocated again when the cache is written. Afterwards the cache contains zeros, as after the
        engine's start, so its blocks must not be in use. The method also returns free heap memory to the system.
        """
        from vllm.platforms import current_platform

        if not current_platform.is_cpu():
            return 0
        trim_heap()
        storages = {cache.untyped_storage().data_ptr(): cache for cache in _tensors(self.model_runner.kv_caches)}
        return sum(empty_pages(cache) for cache in storages.values())

    def oversharp_use_fused_norms(self) -> bool:
        """Use vLLM's fused norm kernels on a CPU, and return whether this build has them."""
        return use_fused_norms()

    def oversharp_replace_adapter_products(self) -> None:
        """Replace vLLM's CPU code for LoRA by a faster one.

        It multiplies once per step instead of once per token.
        """
        replace_adapter_products()

    def oversharp_hook_entropy(self) -> None:
        """Make vLLM return entropies for requests with ``logprobs=1``.

        Minus the entropy replaces the log-probability of the most likely token. vLLM itself returns no entropies. The
        hook works with the V1 model runner, and callers must verify the numbers. On a CPU, log-probabilities are
        computed for a few rows at a time, to stay in the cache. For all rows together they took a tenth of a step.
        """
        from vllm.platforms import current_platform
        from vllm.v1.sample.sampler import Sampler

        gather, normalise = Sampler.gather_logprobs, Sampler.compute_logprobs
        is_late = current_platform.is_cpu()

        def gather_with_entropy(
            logprobs: Float[Tensor, "row vocabulary"], num_logprobs: int, token_ids: Int[Tensor, " row"]
        ) -> Any:
            if num_logprobs != 1:
                return gather(normalise(logprobs) if is_late else logprobs, num_logprobs, token_ids)
            return _with_entropy(logprobs, token_ids)

        Sampler.gather_logprobs = staticmethod(gather_with_entropy)  # type: ignore[method-assign]
        if is_late:
            Sampler.compute_logprobs = staticmethod(_copy_logits)  # type: ignore[method-assign, assignment]


def _copy_logits(logits_BV: Float[Tensor, "row vocabulary"]) -> Float[Tensor, "row vocabulary"]:
    """Copy float32 logits, because vLLM divides these by the temperature in place."""
    return logits_BV.clone() if logits_BV.dtype == torch.float32 else logits_BV


def _tensors(caches: Any) -> Iterator[Tensor]:
    """Yield the tensors of a KV cache. Some layers have several."""
    for cache in caches:
        if isinstance(cache, Tensor):
            yield cache
        else:
            yield from _tensors(cache)


def empty_pages(tensor: Tensor) -> int:
    """Release the memory pages of a tensor's storage, and return their size in bytes.

    Afterwards the pages contain zeros, and the system allocates them again when they are used. The storage must be
    private memory of the process.
    """
    storage, page = tensor.untyped_storage(), mmap.PAGESIZE
    first = -(-storage.data_ptr() // page) * page
    n_bytes = (storage.data_ptr() + storage.nbytes() - first) // page * page
    if n_bytes <= 0:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(n_bytes), ctypes.c_int(mmap.MADV_DONTNEED))
    return 0 if failed else n_bytes


def entropy_nats(logp_BV: Float[Tensor, "row vocabulary"]) -> Float[Tensor, " row"]:
    """Return the entropy of each row of log-probabilities, in nats.

    Tokens with probability 0 contribute 0.

    >>> entropy_nats(torch.tensor([[0.5, 0.5, 0.0]]).log())
    tensor([0.6931])
    """
    # clamp, because 0·−∞ must be 0; torch.special.entr is equivalent, but takes three times as long on a CPU
    return torch.cat(
        [
            -torch.linalg.vecdot(chunk.exp(), chunk.clamp(min=_LEAST_LOGP))
            for chunk in logp_BV.split(_rows_per_chunk(logp_BV))
        ]
    )


def logp_and_entropy(
    logits_BV: Float[Tensor, "row vocabulary"], token_B: Int[Tensor, " row"]
) -> tuple[Float[Tensor, " row"], Float[Tensor, " row"]]:
    """Return the log-probability of each row's token, and each row's entropy, in nats.

    >>> logp_and_entropy(torch.tensor([[0.5, 0.5, 0.0]]).log(), torch.tensor([1]))
    (tensor([-0.6931]), tensor([0.6931]))
    """
    n_rows, logp, entropy = _rows_per_chunk(logits_BV), [], []
    for chunk_CV, token_C in zip(logits_BV.split(n_rows), token_B.split(n_rows), strict=True):
        logp_CV = chunk_CV.log_softmax(dim=-1, dtype=torch.float32)
        logp.append(logp_CV.gather(-1, token_C[:, None])[:, 0])
        entropy.append(entropy_nats(logp_CV))
    return torch.cat(logp), torch.cat(entropy)


def _rows_per_chunk(table_BV: Float[Tensor, "row vocabulary"]) -> int:
    return max(1, elements_per_chunk(table_BV.device, _ELEMENTS_PER_CHUNK) // table_BV.shape[1])


def _with_entropy(logits_BV: Float[Tensor, "row vocabulary"], token_B: Int[Tensor, " row"]) -> Any:
    """Return log-probability and minus entropy as two columns in vLLM's format.

    Its ranks are not used.
    """
    from vllm.v1.outputs import LogprobsTensors

    logp_B, entropy_B = logp_and_entropy(logits_BV, token_B)
    return LogprobsTensors(
        logprob_token_ids=token_B[:, None].expand(-1, 2).to(torch.int32).contiguous(),
        logprobs=torch.stack([logp_B, -entropy_B], dim=1),
        selected_token_ranks=torch.zeros_like(token_B),
    )


# ---------------------------------------------------------------- norms on a CPU


def use_fused_norms() -> bool:
    """Enable vLLM's fused norm kernels on the CPU.

    Returns whether this build of vLLM has them. vLLM's CPU build contains these kernels, but uses them only on GPUs. On
    a CPU it uses a reference implementation of seven or more operations. For 64 rows of SmolLM2-135M the two norms took
    47 and 68 µs with the reference, and 16 and 13 µs with the kernels. The kernels round once where the reference
    rounds twice; each engine's probe verifies the result. The fused activation kernel is not used. It computes one
    exponential at a time, and took 273 µs where the reference took 95 µs.
    """
    from vllm import ir

    if not all(hasattr(torch.ops._C, name) for name in _NORMS):
        return False
    import vllm.kernels.vllm_c  # noqa: F401 registers the norms' kernels

    norms = [getattr(ir.ops, name) for name in _NORMS]
    if not all("vllm_c" in norm.impls for norm in norms):
        return False
    for norm in norms:
        norm.impls["vllm_c"].supported = True
        _require_contiguous(norm.impls["vllm_c"])
        norm.set_default(["vllm_c", "native"])
    return True


def _require_contiguous(kernel: Any) -> None:
    """Restrict a norm kernel to contiguous tensors of a supported size.

    Qwen3 normalises queries and keys. These are slices of one tensor that also contains the values, so they are not
    contiguous. For more than one token the kernel would silently read wrong elements.
    """
    supports_args = kernel.supports_args

    def supports_contiguous(*args: Any, **kwargs: Any) -> bool:
        tensors = [tensor for tensor in (*args, *kwargs.values()) if isinstance(tensor, Tensor)]
        fits = all(tensor.is_contiguous() and not tensor.shape[-1] % _AT_ONCE for tensor in tensors)
        return fits and supports_args(*args, **kwargs)

    kernel.supports_args = supports_contiguous


# ---------------------------------------------------------------- adapters on a CPU


def product_with_adapter(
    input_TI: Float[Tensor, "token input"],
    weight_1OI: Float[Tensor, "1 output input"] | Float[Tensor, "1 1 output input"],
    slot_T: Int[Tensor, " token"],
    dtype: torch.dtype,
) -> Float[Tensor, "token output"]:
    """Return each token's input times the adapter's weights.

    The product is 0 for a token with slot -1 (no adapter).

    Raises ``ValueError`` if ``weight_1OI`` contains several adapters.

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
    """Add the adapter's product to ``output_TO``.

    Each part of the adapter is added to its own columns. ``asked_T`` marks the tokens that use the adapter; None means
    all tokens.

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
    for part_TR, up_PR, width in zip(middle_TR.split([len(part) for part in down], dim=1), up, widths, strict=True):
        used = min(width, len(up_PR))  # adapter and model may be padded differently
        part = output_TO[:, start : start + used]
        part.addmm_(part_TR, up_PR[:used].T.to(part_TR.dtype), alpha=scale)
        start += width


def replace_adapter_products() -> None:
    """Replace the LoRA functions of vLLM's CPU build, in this process.

    Before it multiplies, vLLM's CPU build copies the adapter's weights for every token (``weights[index_of_token]``).
    With SmolLM2-135M, rank 16 and 256 responses, this is gigabytes per step and most of the step's time. Our engines
    have only one adapter (``max_loras=1``), so two matrix products per layer are enough. The intermediate result is
    rounded to the model's precision, as in PEFT.
    """
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
    """Make vLLM's LoRA wrapper compute all parts of a layer in one product.

    Which tokens use the adapter is looked up once per step.
    """
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
        if any(len(part) != 1 for part in down):
            raise ValueError(f"weights of {len(down[0])} adapters: an engine supports one")
        add_adapter(
            output.view(-1, output.shape[-1]),
            inputs.view(-1, inputs.shape[-1]),
            [part[0, 0] for part in down],
            [part[0, 0] for part in up],
            widths,
            asked_T,
            scale,
        )

    wrapper.oversharp_asked = None  # None: all tokens use the adapter
    wrapper.update_metadata, wrapper.add_lora_linear = update_metadata, add_lora_linear
