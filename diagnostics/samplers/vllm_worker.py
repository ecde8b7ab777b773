"""Additions to vLLM's worker, called by name through ``collective_rpc`` in the process that holds the model.

vLLM mixes ``WorkerExtension`` into its worker class. vLLM is imported inside the functions, to keep this module light.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from oversharp.diagnostics.models.devices import elements_per_chunk
from oversharp.diagnostics.records.memory import trim_heap

#: Rows per chunk of a step's entropy, to stay in a CPU's cache.
_ELEMENTS_PER_CHUNK = 1 << 18
#: exp of it is 0 in every precision.
_LEAST_LOGP = -1e4


class WorkerExtension:
    """Methods that vLLM's worker lacks."""

    model_runner: Any

    def oversharp_repack_tied_heads(self) -> int:
        """Repack the output head on a CPU; returns the number of heads.

        The CPU build computes logits from a packed copy of the head. A reload repacks only tensors found in the files.
        A tied head is in none of them, so its copy would silently stay the old one.
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
        """Return the memory of the KV cache on a CPU to the machine until it is written again.

        Returns the bytes.

        Also trims the heap, which the C library keeps below the highest block in use. The cache then reads as zeros, as
        after the engine's start, so its blocks must not be in use.
        """
        from vllm.platforms import current_platform

        if not current_platform.is_cpu():
            return 0
        trim_heap()
        storages = {cache.untyped_storage().data_ptr(): cache for cache in _tensors(self.model_runner.kv_caches)}
        return sum(empty_pages(cache) for cache in storages.values())

    def oversharp_use_fused_norms(self) -> bool:
        """Compute norms by vLLM's fused kernels on a CPU; returns whether it has them."""
        from oversharp.diagnostics.samplers.vllm_norms import use_fused_norms

        return use_fused_norms()

    def oversharp_replace_adapter_products(self) -> None:
        """Multiply with an adapter once per step on a CPU, not once per token."""
        from oversharp.diagnostics.samplers.vllm_adapters import replace_adapter_products

        replace_adapter_products()

    def oversharp_hook_entropy(self) -> None:
        """Return minus the entropy in place of the likeliest token for requests with ``logprobs=1``.

        vLLM provides no entropies. The hook is for the V1 model runner; callers must verify the numbers. On a CPU,
        log-probabilities are computed a few rows at a time, within its cache, not for all rows at once: that took a
        tenth of a step.
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
    """Return logits as they are before vLLM divides them by the temperature, in place for float32."""
    return logits_BV.clone() if logits_BV.dtype == torch.float32 else logits_BV


def _tensors(caches: Any) -> Iterator[Tensor]:
    """Yield the tensors of a cache; some layers have several."""
    for cach in caches:
        if isinstance(cach, Tensor):
            yield cach
        else:
            yield from _tensors(cach)


def empty_pages(tensor: Tensor) -> int:
    """Return the pages inside a tensor's storage to the machine; they then read as zeros.

    Returns the bytes.

    Nothing is copied or written, so memory is allocated again page by page in use. The storage must be private memory
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
    """Return the entropy of each row of log-probabilities; an impossible token adds nothing.

    >>> entropy_nats(torch.tensor([[0.5, 0.5, 0.0]]).log())
    tensor([0.6931])
    """
    # p·log p, where 0·−∞ must be 0; torch.special.entr is equivalent and three times as slow on a CPU
    return torch.cat(
        [-torch.linalg.vecdot(chunk.exp(), chunk.clamp(min=_LEAST_LOGP)) for chunk in logp_BV.split(_rows_of(logp_BV))]
    )


def logp_and_entropy(
    logits_BV: Float[Tensor, "row vocabulary"], token_B: Int[Tensor, " row"]
) -> tuple[Float[Tensor, " row"], Float[Tensor, " row"]]:
    """Return the log-probability of each row's token, and each row's entropy, in nats.

    Of logits or log-probabilities.

    >>> logp_and_entropy(torch.tensor([[0.5, 0.5, 0.0]]).log(), torch.tensor([1]))
    (tensor([-0.6931]), tensor([0.6931]))
    """
    n_rows, logp, entropy = _rows_of(logits_BV), [], []
    for chunk_CV, token_C in zip(logits_BV.split(n_rows), token_B.split(n_rows), strict=True):
        logp_CV = chunk_CV.log_softmax(dim=-1, dtype=torch.float32)
        logp.append(logp_CV.gather(-1, token_C[:, None])[:, 0])
        entropy.append(entropy_nats(logp_CV))
    return torch.cat(logp), torch.cat(entropy)


def _rows_of(table_BV: Float[Tensor, "row vocabulary"]) -> int:
    return max(1, elements_per_chunk(table_BV.device, _ELEMENTS_PER_CHUNK) // table_BV.shape[1])


def _with_entropy(logits_BV: Float[Tensor, "row vocabulary"], token_B: Int[Tensor, " row"]) -> Any:
    """Return the sampled token's column as vLLM gathers it, and the entropy's.

    Top tokens and ranks are unused.
    """

    from vllm.v1.outputs import LogprobsTensors

    logp_B, entropy_B = logp_and_entropy(logits_BV, token_B)
    return LogprobsTensors(
        logprob_token_ids=token_B[:, None].expand(-1, 2).to(torch.int32).contiguous(),
        logprobs=torch.stack([logp_B, -entropy_B], dim=1),
        selected_token_ranks=torch.zeros_like(token_B),
    )
