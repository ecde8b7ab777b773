"""A worker that runs out of memory with many responses at a time."""

from __future__ import annotations

from typing import Any

from oversharp.diagnostics.samplers.vllm_worker import WorkerExtension

MOST_ROWS = 24


class NarrowWorker(WorkerExtension):
    """Stands in for ``WorkerExtension``."""

    def oversharp_hook_entropy(self) -> None:
        super().oversharp_hook_entropy()
        from vllm.v1.sample.sampler import Sampler

        wide = Sampler.gather_logprobs

        def narrow(logprobs: Any, num_logprobs: int, token_ids: Any) -> Any:
            if len(logprobs) > MOST_ROWS:
                raise MemoryError(f"out of memory with {len(logprobs)} rows")
            return wide(logprobs, num_logprobs, token_ids)

        Sampler.gather_logprobs = staticmethod(narrow)  # type: ignore[method-assign]
