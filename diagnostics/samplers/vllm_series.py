"""Run the vLLM engine of a series: start it, load checkpoints, verify weights."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from oversharp.diagnostics.models.batch_sizes import MAX_ROWS, default_rows
from oversharp.diagnostics.models.devices import ONE_THREAD_BELOW_PARAMETERS
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import EngineRefusedError, SamplerError
from oversharp.diagnostics.records.types import Checkpoint, SamplingSettings
from oversharp.diagnostics.samplers.contract import SamplerContext
from oversharp.diagnostics.samplers.vllm_engine import (
    EngineLostError,
    EnginePlan,
    EngineProcess,
    VllmEngine,
    engine_environment,
)
from oversharp.diagnostics.samplers.vllm_messages import WHILE_READING_WEIGHTS, Adapter, Draw, DrawnRow
from oversharp.diagnostics.samplers.vllm_probe import (
    ENTROPY_TOLERANCE_NATS,
    LONG_PROBE_TOKENS,
    PROBE_TOKENS,
    ProbeResult,
    compare,
    long_prompt,
    probe_prompts,
    tolerance_nats,
)
from oversharp.diagnostics.samplers.vllm_support import lora_rank, token_bytes, why_no_swap

#: Substrings of vLLM's memory errors at engine start that a smaller batch would not fix, and a hint for each.
_START_HINTS = (
    (
        WHILE_READING_WEIGHTS,
        "stop other programs on the GPU, pass --dtype bfloat16, or use more GPUs with --tensor-parallel",
    ),
    ("on startup is less than", "lower --gpu-memory-share, or stop other programs on the GPU"),
    ("No available memory for the cache blocks", "raise --gpu-memory-share, or use more GPUs with --tensor-parallel"),
    ("To serve at least one request", "lower --max-model-len or --max-tokens, or raise --gpu-memory-share"),
)
#: ``max_model_len`` is rounded up to a multiple of this, so that a slightly longer prompt does not require a restart.
_LENGTH_STEP = 256


class SeriesEngine:
    """Keeps one engine running, and swaps its weights or adds an adapter for each checkpoint.

    If ``process`` is given, the first engine runs in it.
    """

    def __init__(self, context: SamplerContext, process: EngineProcess | None = None) -> None:
        self._context = context
        self._rows = context.batch_size  # None until a model is loaded
        self._engine: VllmEngine | None = None
        self._next_process = process
        self._model: tuple[Path, str | None] | None = None  # folder of the engine's weights, and their hash if known
        self._verified: str | None = None  # hash of the verified weights
        self._adapters: dict[str, Adapter] = {}
        self._adapter_numbers = itertools.count(1)
        self._probe_prompts: list[tuple[int, ...]] = []
        self._probed: list[DrawnRow] = []  # the engine's last responses to the probe prompts
        self._use_hook = True
        self._is_resting = False
        self.adapter: Adapter | None = None
        self.has_entropy = False

    @property
    def running(self) -> VllmEngine:
        """The running engine, started by ``load``."""
        if self._engine is None:
            raise RuntimeError("no engine was started")
        return self._engine

    def load(
        self,
        checkpoint: Checkpoint,
        loaded: LoadedModel,
        prompts: Sequence[tuple[int, ...]],
        settings: SamplingSettings,
    ) -> None:
        """Load ``checkpoint`` into the engine and verify its weights.

        ``loaded`` is the same model in transformers.

        Raises ``SamplerError`` if the engine's log-probabilities differ even after a restart, ``EngineLostError`` if
        the engine ends.
        """
        plan = self._plan(checkpoint, loaded, prompts, settings)
        reason = self._why_restart(plan, checkpoint)
        if self._is_resting and reason is None:
            self.running.wake()
            self._is_resting = False
        if self._engine is not None and reason is None and self._verified == checkpoint.weights_hash:
            return
        self._verified = None
        fresh, swapped = self._engine is None or reason is not None, False
        if reason is not None:
            self._context.note(f"{checkpoint.label}: restarting vLLM: {reason}")
        if not fresh and not self._has_weights(checkpoint):
            swapped = self._swap(checkpoint)
            if not swapped:
                self._context.note(f"{checkpoint.label}: restarting vLLM: its prefix cache could not be reset")
                fresh = True
        if fresh:
            self._start(plan, checkpoint, prompts)
        self.adapter = self._add_adapter(checkpoint)
        before = self._probed
        result = self._probe(checkpoint.label, loaded, fresh=fresh)
        tolerance = tolerance_nats(result, plan.dtype)
        fault = _find_swap_fault(result, before, self._probed, tolerance) if swapped else None
        if fault is not None:
            self._context.note(f"{checkpoint.label}: restarting vLLM: after the weight swap, {fault}")
            self._start(plan, checkpoint, prompts)
            self.adapter = self._add_adapter(checkpoint)
            result = self._probe(checkpoint.label, loaded, fresh=True)
            tolerance = tolerance_nats(result, plan.dtype)
        self._require_agreement(result, checkpoint, tolerance)
        self._check_entropy(result, plan)
        self._verified = checkpoint.weights_hash

    def recover(self, error: EngineLostError, checkpoint: Checkpoint, *, give_up: bool) -> None:
        """Close the engine that ended, and halve the number of concurrent responses.

        Raises ``SamplerError`` if ``give_up`` is set.
        """
        self.close()
        if give_up:
            memory = "--cpu-cache-gib" if self._context.models.device.type == "cpu" else "--gpu-memory-share"
            raise SamplerError(
                f"{checkpoint.label}: the vLLM engine ended repeatedly ({error}); "
                f"lower --batch-size, --max-model-len or {memory}, or use --sampler transformers"
            )
        self._rows = max(1, (self._rows or MAX_ROWS) // 2)
        self._context.note(
            f"{checkpoint.label}: the vLLM engine ended ({error}); restarting it with "
            f"{plural(self._rows, 'concurrent response')}"
        )

    def rest(self) -> None:
        """Release the engine's memory until the next ``load``. If that fails, the engine is closed."""
        if self._engine is None or self._is_resting:
            return
        try:
            self._engine.rest()
            self._is_resting = True
        except EngineLostError as error:
            self._context.note(f"the vLLM engine cannot release its memory ({error}); it is restarted when needed")
            self.close()

    def close(self) -> None:
        """End the engine's process."""
        for running in (self._engine, self._next_process):
            if running is not None:
                running.close()
        self._next_process = None
        self._is_resting = False
        self._engine = self._model = self._verified = self.adapter = None
        self._adapters = {}

    # ---------------------------------------------------------------- start and swap

    def _plan(
        self,
        checkpoint: Checkpoint,
        loaded: LoadedModel,
        prompts: Sequence[tuple[int, ...]],
        settings: SamplingSettings,
    ) -> EnginePlan:
        """Return the engine settings that this call needs.

        They are at least as large as those of the running engine.
        """
        needed = max(map(len, prompts)) + settings.max_tokens
        given = self._context.engine.max_model_len
        if given is not None and given < needed:
            raise SamplerError(
                f"--max-model-len {given}: the longest prompt and --max-tokens {settings.max_tokens} need {needed} "
                f"tokens; pass --max-model-len {needed}, or remove it"
            )
        length = max(needed, LONG_PROBE_TOKENS + PROBE_TOKENS)
        length = given or -(-length // _LENGTH_STEP) * _LENGTH_STEP
        model = (checkpoint.base_path or checkpoint.path).resolve()
        rank = max(lora_rank(checkpoint), self._context.engine.lora_ranks.get(model, 0))
        if self._engine is not None:
            length = max(length, self._engine.plan.max_model_len)
            rank = max(rank, self._engine.plan.max_lora_rank if self._engine.plan.model == model else 0)
        if loaded.context_tokens is not None:
            length = min(length, loaded.context_tokens)
        models = self._context.models
        n_parameters = sum(tensor.numel() for tensor in loaded.model.parameters())
        small = n_parameters < ONE_THREAD_BELOW_PARAMETERS
        if self._rows is None:
            self._rows = default_rows(models.device.type, n_parameters, torch.get_num_threads())
        return EnginePlan(
            model=model,
            dtype=models.dtype,
            device=str(models.device),
            max_model_len=length,
            row_tokens=needed,
            max_num_seqs=self._rows,
            max_lora_rank=rank,
            eager=small or models.device.type == "cpu",
            threads=1 if small else None,
            token_bytes=token_bytes(loaded.model.config, models.dtype),
            settings=self._context.engine,
        )

    def _why_restart(self, plan: EnginePlan, checkpoint: Checkpoint) -> str | None:
        """Return why the engine must restart for this checkpoint.

        Returns None if it need not restart, or if no engine runs.
        """
        if self._engine is None or self._model is None:
            return None
        current = self._engine.plan
        if plan.max_model_len > current.max_model_len:
            return f"prompts and responses need up to {plan.max_model_len} tokens"
        if plan.max_lora_rank > current.max_lora_rank:
            return f"the adapter needs memory for rank {plan.max_lora_rank}"
        if self._has_weights(checkpoint):
            return None
        if current.max_lora_rank or checkpoint.kind == "lora":
            return "the checkpoint has another base model"
        return why_no_swap(self._model[0], plan.model)

    def _has_weights(self, checkpoint: Checkpoint) -> bool:
        """Return whether the engine has the weights that the checkpoint needs.

        For an adapter these are the weights of its base.
        """
        if self._model is None:
            return False
        path, weights_hash = self._model
        if checkpoint.kind == "lora":
            return path == (checkpoint.base_path or checkpoint.path).resolve()
        return path == checkpoint.path.resolve() and weights_hash in (None, checkpoint.weights_hash)

    def _start(self, plan: EnginePlan, checkpoint: Checkpoint, prompts: Sequence[tuple[int, ...]]) -> None:
        process, self._next_process = self._next_process or self._new_process(), None
        self.close()
        try:
            self._engine = VllmEngine(plan, process)
            if self._use_hook:
                self._engine.hook_entropy()
        except EngineLostError as error:
            if (hint := start_hint(str(error))) is not None:
                self.close()
                raise SamplerError(f"{checkpoint.label}: vLLM does not start ({error}); {hint}") from None
            if error.short_of_memory:
                raise
            raise self._refuse_engine(checkpoint.label, error) from None
        self.has_entropy = self._use_hook
        self._model = (plan.model, checkpoint.weights_hash if checkpoint.kind == "full" else None)
        long = long_prompt(max(prompts, key=len), max_model_len=plan.max_model_len)
        self._probe_prompts, self._probed = [*probe_prompts(prompts), long], []

    def _new_process(self) -> EngineProcess:
        models = self._context.models
        environment = engine_environment(models.device_name, self._context.engine, os.environ, dtype=models.dtype)
        return EngineProcess(environment)

    def _swap(self, checkpoint: Checkpoint) -> bool:
        """Load the checkpoint's weights into the engine.

        Returns whether the engine's prefix cache was reset.
        """
        self._model = None
        self.running.reload_weights(checkpoint.path.resolve())
        self.running.repack_tied_heads()
        self._model = (checkpoint.path.resolve(), checkpoint.weights_hash)
        return self.running.reset_prefix_cache()

    def _add_adapter(self, checkpoint: Checkpoint) -> Adapter | None:
        if checkpoint.kind != "lora":
            return None
        known = self._adapters.get(checkpoint.weights_hash)
        if known is not None:
            return known
        adapter = Adapter(number=next(self._adapter_numbers), path=checkpoint.path.resolve())
        try:
            self.running.add_adapter(adapter)
        except EngineLostError as error:
            if error.short_of_memory:
                raise
            raise SamplerError(
                f"{checkpoint.label}: vLLM cannot load this adapter ({error}); use --sampler transformers"
            ) from None
        self._adapters[checkpoint.weights_hash] = adapter
        return adapter

    # ---------------------------------------------------------------- verification

    def _probe(self, label: str, loaded: LoadedModel, *, fresh: bool) -> ProbeResult:
        """Generate greedy tokens for the probe prompts, and compare with transformers.

        The prompts are the same for every swap of an engine.
        """
        try:
            rows = self._probe_rows()
        except EngineLostError as error:
            if not fresh or error.short_of_memory:
                raise
            if not self.has_entropy:
                raise self._refuse_engine(label, error) from None
            # the hook may be the cause, so the next engine runs without it
            self._disable_hook(f"vLLM fails with the entropy hook ({error})")
            raise
        self._probed = rows
        return compare(loaded, self._probe_prompts, rows)

    def _probe_rows(self) -> list[DrawnRow]:
        """Generate all probe responses in one batch.

        The batch's shape affects the last bits, so it is constant.
        """
        draws = [self._probe_draw(-1 - place, prompt_ids) for place, prompt_ids in enumerate(self._probe_prompts)]
        self.running.submit(*draws)
        rows: dict[int, DrawnRow] = {}
        while len(rows) < len(draws):
            drawn = self.running.collect()
            if drawn is not None and drawn.ticket < 0:  # skip replies to an aborted call
                rows[drawn.ticket] = drawn.rows[0]
        return [rows[draw.ticket] for draw in draws]

    def _probe_draw(self, ticket: int, prompt_ids: tuple[int, ...]) -> Draw:
        return Draw(
            ticket=ticket,
            prompt_ids=prompt_ids,
            n=1,
            seed=None,
            temperature=0.0,
            top_p=1.0,
            top_k=0,
            max_tokens=min(PROBE_TOKENS, self.running.plan.max_model_len - len(prompt_ids)),
            end_ids=(),
            entropy=self.has_entropy,
            adapter=self.adapter,
        )

    def _require_agreement(self, result: ProbeResult, checkpoint: Checkpoint, tolerance: float) -> None:
        if not result.model_is_finite:
            raise SamplerError(
                f"{checkpoint.label}: the model returns NaN or infinite logits; "
                "try --dtype float32, or leave this checkpoint out"
            )
        if result.logp > tolerance:
            self.close()
            raise EngineRefusedError(
                f"{checkpoint.label}: log-probabilities of vLLM and transformers differ by up to {result.logp:.2g} "
                f"nats, even after a restart (allowed: {tolerance:.2g}); use --sampler transformers"
            )

    def _check_entropy(self, result: ProbeResult, plan: EnginePlan) -> None:
        if result.entropy is not None and result.entropy > ENTROPY_TOLERANCE_NATS[plan.dtype]:
            self._disable_hook(f"entropies of vLLM are wrong by up to {result.entropy:.2g} nats")

    def _refuse_engine(self, label: str, error: EngineLostError) -> SamplerError:
        self.close()
        return EngineRefusedError(f"{label}: vLLM cannot run this model here ({error}); use --sampler transformers")

    def _disable_hook(self, reason: str) -> None:
        """Generate without entropies from now on."""
        self._use_hook = self.has_entropy = False
        self._context.note(f"{reason}; the entropy is computed with transformers instead")


def start_hint(message: str) -> str | None:
    """Return a hint for a memory error at engine start.

    Returns None for other errors, and if a smaller batch would fix the error.

    >>> start_hint("ValueError: Free memory on device cuda:0 (3.1/79.2 GiB) on startup is less than desired")
    'lower --gpu-memory-share, or stop other programs on the GPU'
    >>> start_hint("while reading the weights: OutOfMemoryError: CUDA out of memory.")
    'stop other programs on the GPU, pass --dtype bfloat16, or use more GPUs with --tensor-parallel'
    >>> start_hint("OutOfMemoryError: warming up with 256 dummy requests; try lowering `max_num_seqs`") is None
    True
    """
    return next((hint for part, hint in _START_HINTS if part in message), None)


def _find_swap_fault(
    result: ProbeResult, before: Sequence[DrawnRow], now: Sequence[DrawnRow], tolerance: float
) -> str | None:
    """Return the fault of an engine after a weight swap, None if no fault is detected.

    In half precision, the difference from transformers is too coarse to distinguish consecutive checkpoints. So a
    second test is used: new weights change at least some last bits of the log-probabilities, but an engine that still
    has the old weights repeats its response exactly.
    """
    if not result.model_is_finite:
        return None  # the model is at fault, not the engine
    if result.logp > tolerance:
        return f"its log-probabilities are wrong by {result.logp:.2g} nats"
    if len(before) == len(now) and all(map(_same, before, now)):
        return "its responses are bit-identical to those of the previous checkpoint"
    return None


def _same(first: DrawnRow, second: DrawnRow) -> bool:
    return first.token_ids == second.token_ids and np.array_equal(first.logp_T, second.logp_T)
