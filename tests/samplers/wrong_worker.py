"""A worker whose entropies are 10 % too large, as with a hook that no longer fits vLLM's sampler."""

from __future__ import annotations

from oversharp.diagnostics.samplers.vllm_worker import WorkerExtension


class WrongWorker(WorkerExtension):
    """``WorkerExtension`` with a wrong entropy hook."""

    def oversharp_hook_entropy(self) -> None:
        super().oversharp_hook_entropy()
        from vllm.v1.sample.sampler import Sampler

        gather = Sampler.gather_logprobs

        def gather_wrong(logprobs: object, num_logprobs: int, token_ids: object) -> object:
            gathered = gather(logprobs, num_logprobs, token_ids)
            if num_logprobs == 1:
                gathered.logprobs[:, 1] *= 1.1
            return gathered

        Sampler.gather_logprobs = staticmethod(gather_wrong)  # type: ignore[method-assign]
