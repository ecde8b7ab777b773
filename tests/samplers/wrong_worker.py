"""A worker whose entropies are wrong by a tenth: what a hook that no longer fits vLLM's sampler could do."""

from __future__ import annotations

from oversharp.diagnostics.samplers.vllm_worker import WorkerExtension


class WrongWorker(WorkerExtension):
    """Stands in for ``WorkerExtension``."""

    def oversharp_hook_entropy(self) -> None:
        super().oversharp_hook_entropy()
        from vllm.v1.sample.sampler import Sampler

        right = Sampler.gather_logprobs

        def wrong(logprobs: object, num_logprobs: int, token_ids: object) -> object:
            gathered = right(logprobs, num_logprobs, token_ids)
            if num_logprobs == 1:
                gathered.logprobs[:, 1] *= 1.1
            return gathered

        Sampler.gather_logprobs = staticmethod(wrong)  # type: ignore[method-assign]
