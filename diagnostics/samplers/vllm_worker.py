"""Additions to vLLM's worker, called by name through ``collective_rpc``.

vLLM mixes ``WorkerExtension`` into its worker class. vLLM is imported inside the functions, to keep this module light.
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

#: Rows per chunk of a step's entropy, to stay in a CPU's cache.
_ELEMENTS_PER_CHUNK = 1 << 18
#: Its exp is 0 in every precision.
_LEAST_LOGP = -1e4
_NORMS = ("rms_norm", "fused_add_rms_norm")
#: The kernels process this many numbers at a time, in any precision, and require a multiple of it.
_AT_ONCE = 32


class WorkerExtension:
    """Additional methods of vLLM's worker."""

    model_runner: Any

    def oversharp_repack_tied_heads(self) -> int:
        """Repack the output head on a CPU; return the number of heads.

        The CPU build computes logits from a packed copy of the head. A reload repacks only tensors in the files, which
        lack a tied head, so its copy would silently stay the old one.
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
        """Release the memory of the KV cache on a CPU until it is written again; return its bytes.

        Also trims the heap, which the C library keeps below the highest block in use. The cache then contains zeros, as
        after the engine's start, so its blocks must not be in use.
        """
        from vllm.platforms import current_platform

        if not current_platform.is_cpu():
            return 0
        trim_heap()
        storages = {cache.untyped_storage().data_ptr(): cache for cache in _tensors(self.model_runner.kv_caches)}
        return sum(empty_pages(cache) for cache in storages.values())

    def oversharp_use_fused_norms(self) -> bool:
        """Compute norms by vLLM's fused kernels on a CPU; return whether it has them."""
        return use_fused_norms()

    def oversharp_replace_adapter_products(self) -> None:
        """Multiply with an adapter once per step on a CPU, not once per token."""
        replace_adapter_products()

    def oversharp_hook_entropy(self) -> None:
        """Return minus the entropy in place of the likeliest token for requests with ``logprobs=1``.

        vLLM provides no entropies. The hook is for the V1 model runner; callers must verify the numbers. On a CPU,
        log-probabilities are computed a few rows at a time, within its cache: for all rows together they took a tenth
        of a step.
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
    """Copy the logits before vLLM divides them by the temperature, in place for float32."""
    return logits_BV.clone() if logits_BV.dtype == torch.float32 else logits_BV


def _tensors(caches: Any) -> Iterator[Tensor]:
    """Yield the tensors of a cache; some layers have several."""
    for cache in caches:
        if isinstance(cache, Tensor):
            yield cache
        else:
            yield from _tensors(cache)


def empty_pages(tensor: Tensor) -> int:
    """Release the pages inside a tensor's storage, which then contain zeros; return the bytes.

    No data are copied or written, so memory is allocated again page by page in use. The storage must be private memory
    of the process.
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
    """Return the entropy of each row of log-probabilities; a token with probability 0 adds 0.

    >>> entropy_nats(torch.tensor([[0.5, 0.5, 0.0]]).log())
    tensor([0.6931])
    """
    # p·log p, where 0·−∞ must be 0; torch.special.entr is equivalent and three times as slow on a CPU
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
    """Return the columns of token and entropy in vLLM's format, with unused ranks."""
    from vllm.v1.outputs import LogprobsTensors

    logp_B, entropy_B = logp_and_entropy(logits_BV, token_B)
    return LogprobsTensors(
        logprob_token_ids=token_B[:, None].expand(-1, 2).to(torch.int32).contiguous(),
        logprobs=torch.stack([logp_B, -entropy_B], dim=1),
        selected_token_ranks=torch.zeros_like(token_B),
    )


# ---------------------------------------------------------------- norms on a CPU


def use_fused_norms() -> bool:
    """Enable the fused norms where sizes allow; return whether this build of vLLM has them.

    vLLM's CPU build has these kernels but enables them only on GPUs. Its reference takes seven operations or more: for
    64 rows of SmolLM2-135M the two norms took 47 and 68 µs, and take 16 and 13. The kernels round once where the
    reference rounds twice; the probe of each engine verifies the result. The fused activation is not used: it computes
    one exponential at a time, and takes 273 µs where the reference takes 95.
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
    """Use a norm kernel only for contiguous tensors of a suitable size.

    Queries and keys, which Qwen3 normalises, are slices of their common product with the values: with more than one
    token the kernel would silently normalise other numbers.
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
    """Return each token's input times the adapter's weights, 0 for slot -1 (no adapter).

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
    """Add the product with each adapter part to its columns of ``output_TO``.

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
    for part_TR, up_PR, width in zip(middle_TR.split([len(part) for part in down], dim=1), up, widths, strict=True):
        used = min(width, len(up_PR))  # adapter and model may be padded differently
        part = output_TO[:, start : start + used]
        part.addmm_(part_TR, up_PR[:used].T.to(part_TR.dtype), alpha=scale)
        start += width


def replace_adapter_products() -> None:
    """Replace vLLM's products with a LoRA adapter in this process.

    vLLM's CPU build gathers ``weights[index_of_token]`` before it multiplies: gigabytes per step, and most of its time,
    with SmolLM2-135M, rank 16 and 256 responses. Our engines have one adapter (``max_loras=1``), so two matrix products
    per layer suffice, with the intermediate result rounded to the model's precision as in PEFT.
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
    """Compute all parts of a layer in one product, with one lookup of tokens per step."""
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

    wrapper.oversharp_asked = None  # before the first step all tokens use the adapter
    wrapper.update_metadata, wrapper.add_lora_linear = update_metadata, add_lora_linear
