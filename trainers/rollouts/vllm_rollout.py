"""Sample rollouts with vLLM in the trainer's process. Its weights are overwritten in place after every update.

The weights are verified before the first rollout and after each sync (see ``vllm_fingerprint``).
"""

from __future__ import annotations

import gc
import os
import random
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from oversharp.diagnostics.models.load import Dtype, LoadedModel
from oversharp.diagnostics.models.tokens import pad_left
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.samplers.vllm_engine import EnginePlan, engine_environment
from oversharp.diagnostics.samplers.vllm_probe import LOGP_TOLERANCE_NATS
from oversharp.diagnostics.samplers.vllm_support import why_not
from oversharp.trainers.batch import RolloutBatch
from oversharp.trainers.model.policy import plain_weights
from oversharp.trainers.rollouts.vllm_fingerprint import (
    HIDDEN_NATS,
    PROBE_TOKENS,
    Fingerprint,
    choose_prompts,
    network_columns,
    round_weights,
)
from oversharp.trainers.rollouts.vllm_model import EXTRA_COLUMNS, LogpColumns, pair_overrides, register_pair
from oversharp.trainers.rollouts.vllm_plan import engine_plan

if TYPE_CHECKING:
    from oversharp.trainers.rollouts.memory_network import MemoryNetwork

#: Minimum temperature of vLLM. It replaces lower temperatures by this value.
LEAST_TEMPERATURE = 0.01
#: Value of vLLM's ``gpu_memory_utilization``: the share of the GPU's memory that must be free when vLLM starts. It is
#: small, because the run's memory plan checks the free memory. It has no other effect if the cache size is given.
_LEAST_SHARE = 0.01


class VllmRolloutEngine:
    """Rollout engine with vLLM on the trainer's device, for the policy and, with DLC, the memory network.

    Args:
        start: Checkpoint with the policy's architecture to start vLLM from. Its weights are overwritten at once.
        max_model_len: Maximum total length of prompt and response, in tokens.
        rows: Number of responses to sample at a time.
        dtype: Precision of the engine's weights and matrix products, on CPU and GPU.
        cache_bytes: Maximum size of the KV cache. Default: see ``engine_plan``.

    Raises:
        TrainingError: vLLM does not run here, or its log-probabilities differ from the networks'.
    """

    def __init__(
        self,
        policy: LoadedModel,
        *,
        start: Path,
        max_model_len: int,
        rows: int,
        memory_network: MemoryNetwork | None = None,
        dtype: Dtype = "float32",
        cache_bytes: float | None = None,
    ) -> None:
        self._policy = policy
        self._memory_network = memory_network if memory_network is not None and memory_network.mu else None
        for folder in [start] if self._memory_network is None else [start, self._memory_network.path]:
            require_vllm(policy.device, folder, name=str(folder))
        self._plan = engine_plan(
            policy, self._memory_network, start, max_model_len=max_model_len, rows=rows, dtype=dtype
        )
        cache = self._plan.cache_bytes if cache_bytes is None else min(self._plan.cache_bytes, int(cache_bytes))
        self._llm = _start_engine(self._plan, _pair_arguments(policy, self._memory_network), cache_bytes=cache)
        # vLLM runs in this process, so its worker and model can be accessed directly
        self._worker: Any = self._llm.collective_rpc(_return_worker)[0]
        self._model: Any = self._worker.model_runner.get_model()
        self._columns = LogpColumns(self._model)
        self._worker.model_runner.sampler.gather_logprobs = self._columns
        self._asleep = False
        self._probe: list[tuple[int, ...]] = []
        self._fingerprint: Fingerprint | None = None
        self._overwrite_weights()

    def sample(
        self, prompts: Sequence[Sequence[int]], *, group_size: int, max_tokens: int, temperature: float, seed: int
    ) -> RolloutBatch:
        """See ``RolloutEngine.sample``."""
        require_temperature(temperature)
        self._prepare(prompts)
        generator = torch.Generator().manual_seed(seed)
        # response i of a request uses seed + i, so the seeds of two prompts must be far apart
        seeds = torch.randint(1 << 62, (len(prompts),), generator=generator).tolist()
        mu = 0.0 if self._memory_network is None else self._memory_network.mu
        rows = self._generate(prompts, seeds, n=group_size, max_tokens=max_tokens, temperature=temperature, mu=mu)
        self._sleep()
        return self._batch(prompts, rows, group_size=group_size, max_tokens=max_tokens)

    def greedy(self, prompts: Sequence[Sequence[int]], *, max_tokens: int) -> RolloutBatch:
        """See ``RolloutEngine.greedy``."""
        self._prepare(prompts)
        rows = self._generate(prompts, [None] * len(prompts), n=1, max_tokens=max_tokens, temperature=0.0, mu=0.0)
        self._sleep()
        return self._batch(prompts, rows, group_size=1, max_tokens=max_tokens)

    def sync(self) -> dict[str, float]:
        """Overwrite the engine's weights with the networks', and verify its log-probabilities.

        The metrics are ``engine_sync_s``, and ``probe_logp_gap``, the largest difference on the probed tokens in nats.
        """
        started = time.perf_counter()
        self._wake()
        self._overwrite_weights()
        metrics = {"probe_logp_gap": self._verify()} if self._probe else {}
        return {"engine_sync_s": time.perf_counter() - started, **metrics}

    def close(self) -> None:
        """Release the engine. Repeated calls are allowed."""
        self._llm = self._worker = self._model = None
        gc.collect()

    # ---------------------------------------------------------------- weights

    def _overwrite_weights(self) -> None:
        if self._memory_network is None:
            weights = plain_weights(self._policy.model)
        else:
            halves = (("policy", self._policy.model), ("memory", self._memory_network.model))
            weights = chain.from_iterable(
                ((f"{half}.{name}", tensor) for name, tensor in plain_weights(model)) for half, model in halves
            )
        with torch.no_grad():
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self._llm.collective_rpc("oversharp_repack_tied_heads")
        if not self._llm.reset_prefix_cache():
            raise TrainingError("vLLM did not reset its prefix cache after the weight sync; use --engine own")

    def _prepare(self, prompts: Sequence[Sequence[int]]) -> None:
        """Wake the engine. Before the first rollout, also verify it on these prompts."""
        self._wake()
        if not self._probe:
            self._probe = choose_prompts(prompts, max_model_len=self._plan.max_model_len)
            self._verify()

    def _verify(self) -> float:
        """Compare the engine's log-probabilities with the networks', and return the largest difference in nats.

        Raises ``TrainingError`` if they differ by more than rounding, or if the engine's weights did not change.
        """
        memory_network, mu = (
            (None, 0.0) if self._memory_network is None else (self._memory_network.loaded, self._memory_network.mu)
        )
        rows = self._generate(
            self._probe, [0] * len(self._probe), n=1, max_tokens=PROBE_TOKENS, temperature=1.0, mu=mu, to_the_end=True
        )

        responses = [token_ids for token_ids, _ in rows]
        now = Fingerprint(
            engine_N3=np.concatenate([columns for _, columns in rows]),
            own_N3=self._network_columns(memory_network, mu, responses),
        )
        tolerance, gap_nats = LOGP_TOLERANCE_NATS[self._plan.dtype], now.gap_nats
        if gap_nats > tolerance and self._plan.dtype != "float32":
            # rounding alone can change log-probabilities by several nats, so compare with rounded weights
            with self._round_networks(memory_network):
                gap_nats = replace(now, own_N3=self._network_columns(memory_network, mu, responses)).gap_nats
        if gap_nats > tolerance:
            raise TrainingError(
                f"vLLM's log-probabilities differ from the policy's (by {gap_nats:.2g} nats, allowed {tolerance:g}); "
                "use --engine own"
            )
        before = self._fingerprint
        if before is not None and now.is_stale_after(before, hidden_nats=HIDDEN_NATS[self._plan.dtype]):
            raise TrainingError(
                "vLLM's log-probabilities are bit-identical to those before the last update: its weights did not "
                "change; use --engine own"
            )
        # keep the values from the last time that the engine's values changed, because small changes add up
        if before is None or not now.is_repeated(before):
            self._fingerprint = now
        return now.gap_nats

    def _network_columns(
        self, memory_network: LoadedModel | None, mu: float, responses: Sequence[Sequence[int]]
    ) -> Float[np.ndarray, "token column"]:
        """Return the networks' log-probability columns for these responses to the probe prompts."""
        pairs = zip(self._probe, responses, strict=True)
        return np.concatenate([network_columns(self._policy, memory_network, mu, *pair) for pair in pairs])

    @contextmanager
    def _round_networks(self, memory_network: LoadedModel | None) -> Iterator[None]:
        """Round the weights of the networks to the engine's precision inside the block."""
        with ExitStack() as stack:
            for engine in filter(None, (self._policy, memory_network)):
                stack.enter_context(round_weights(engine.model, getattr(torch, self._plan.dtype)))
            yield

    # ---------------------------------------------------------------- sampling

    def _generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int | None],
        *,
        n: int,
        max_tokens: int,
        temperature: float,
        mu: float,
        to_the_end: bool = False,
    ) -> list[tuple[tuple[int, ...], Float[np.ndarray, "token column"]]]:
        """Return tokens and log-probability columns of ``n`` responses per prompt.

        With ``to_the_end``, end tokens are ignored, so all responses have ``max_tokens`` tokens.
        """
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        self._columns.temperature = temperature
        if self._memory_network is not None:
            self._model.mu = mu
        parameters = [
            SamplingParams(
                n=n,
                seed=seed,
                temperature=temperature,
                max_tokens=min(max_tokens, self._plan.max_model_len - len(prompt)),
                stop_token_ids=[] if to_the_end else list(self._policy.end_ids),
                ignore_eos=True,
                logprobs=EXTRA_COLUMNS,
                flat_logprobs=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        requests = [TokensPrompt(prompt_token_ids=list(prompt)) for prompt in prompts]
        answers = self._llm.generate(requests, parameters, use_tqdm=False)
        return [
            _row(output) for answer in answers for output in sorted(answer.outputs, key=lambda output: output.index)
        ]

    def _batch(
        self,
        prompts: Sequence[Sequence[int]],
        rows: Sequence[tuple[tuple[int, ...], Float[np.ndarray, "token column"]]],
        *,
        group_size: int,
        max_tokens: int,
    ) -> RolloutBatch:
        prompt_ids_PL, prompt_mask_PL = pad_left(prompts, self._policy)
        ids_BT = np.full((len(rows), max_tokens), self._policy.pad_id, dtype=np.int64)
        columns_BT3 = np.zeros((len(rows), max_tokens, 1 + EXTRA_COLUMNS), dtype=np.float32)
        for row, (token_ids, columns_T3) in enumerate(rows):
            ids_BT[row, : len(token_ids)] = token_ids
            columns_BT3[row, : len(token_ids)] = columns_T3
        length_B = torch.tensor([len(token_ids) for token_ids, _ in rows])
        ended_B = torch.tensor([token_ids[-1] in self._policy.end_ids for token_ids, _ in rows])
        behaviour_logp_BT, logp_BT, minus_entropy_BT = torch.from_numpy(columns_BT3).to(self._policy.device).unbind(-1)
        return RolloutBatch(
            group_size=group_size,
            prompt_ids_PL=prompt_ids_PL,
            prompt_mask_PL=prompt_mask_PL,
            response_ids_BT=torch.from_numpy(ids_BT).to(self._policy.device),
            response_mask_BT=(torch.arange(max_tokens) < length_B[:, None]).to(self._policy.device),
            behaviour_logp_BT=behaviour_logp_BT.contiguous(),
            logp_sum_B=logp_BT.sum(dim=1),
            entropy_sum_B=-minus_entropy_BT.sum(dim=1),
            truncated_B=~ended_B.to(self._policy.device),
        )

    # ---------------------------------------------------------------- sleep

    def _sleep(self) -> None:
        """Release the engine's GPU memory for the update. On a CPU, do nothing."""
        if not self._plan.on_cpu:
            self._llm.sleep(level=1)
            self._asleep = True

    def _wake(self) -> None:
        if self._asleep:
            self._llm.wake_up()
            self._asleep = False


def _row(output: Any) -> tuple[tuple[int, ...], Float[np.ndarray, "token column"]]:
    token_ids = tuple(map(int, output.token_ids))
    return token_ids, np.array(output.logprobs.logprobs, dtype=np.float32).reshape(len(token_ids), 1 + EXTRA_COLUMNS)


def _return_worker(worker: Any) -> Any:
    return worker


def require_temperature(temperature: float) -> None:
    """Raise ``TrainingError`` for a temperature that vLLM would silently increase."""
    if temperature < LEAST_TEMPERATURE:
        raise TrainingError(
            f"--temperature {temperature}: vLLM samples at {LEAST_TEMPERATURE} or above; raise it or use --engine own"
        )


def require_vllm(device: torch.device, folder: Path, *, name: str) -> None:
    """Raise ``TrainingError`` if vLLM cannot run the model in ``folder``. ``name`` is the model's in the message.

    This does not import vLLM, so a model that vLLM itself rejects is found only when the engine starts.
    """
    if device.index not in (None, 0):
        raise TrainingError(
            f"--device {device}: vLLM in this process uses the first visible GPU; set CUDA_VISIBLE_DEVICES and use "
            "--device cuda, or use --engine own"
        )
    checkpoint = Checkpoint(step=0, label=folder.name, path=folder, kind="full", weights_hash="")
    reason = why_not(checkpoint, device=device.type)
    if reason is not None:
        raise TrainingError(f"{name}: {reason.replace('--sampler transformers', '--engine own')}")


def _pair_arguments(policy: LoadedModel, memory_network: MemoryNetwork | None) -> dict[str, Any]:
    if memory_network is None:
        return {}
    inner: Any = policy.model
    architecture = type(inner.get_base_model() if hasattr(inner, "get_base_model") else inner).__name__
    return {"hf_overrides": pair_overrides(policy_architecture=architecture, memory_path=str(memory_network.path))}


def _start_engine(plan: EnginePlan, pair_arguments: dict[str, Any], *, cache_bytes: int) -> Any:
    """Start vLLM. First set the environment variables that vLLM reads on import, but keep existing values."""
    variables = engine_environment(None, plan.settings, {}) | {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    for name, setting in variables.items():
        if name.startswith("VLLM_"):  # the other variables are for a separate process
            os.environ.setdefault(name, setting)
    arguments = plan.arguments() | pair_arguments | {"max_logprobs": EXTRA_COLUMNS, "use_tqdm_on_load": False}
    arguments |= {"kv_cache_memory_bytes": cache_bytes}
    if not plan.on_cpu:
        arguments |= {"enable_sleep_mode": True, "gpu_memory_utilization": _LEAST_SHARE}
    with _keep_process_state(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from vllm import LLM

            if pair_arguments:
                register_pair()
            return LLM(**arguments)
        except Exception as error:  # vLLM raises exceptions of any type
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            why = lines[0][:200] if lines else type(error).__name__
            raise TrainingError(f"{plan.model}: vLLM does not start ({why}); use --engine own") from error


@contextmanager
def _keep_process_state() -> Iterator[None]:
    """After the block, restore global state that vLLM changes: random states and torch's number of threads."""
    set_threads, n_threads = torch.set_num_threads, torch.get_num_threads()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_num_threads = set_threads
        torch.set_num_threads(n_threads)
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
