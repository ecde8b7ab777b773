"""One vLLM engine for a series.

Started when needed, updated to each checkpoint, and verified before use.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from oversharp.diagnostics.models.devices import ONE_THREAD_BELOW_PARAMETERS
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import EngineRefusedError, SamplerError
from oversharp.diagnostics.records.types import Checkpoint, SamplingSettings
from oversharp.diagnostics.samplers.contract import SamplerContext
from oversharp.diagnostics.samplers.rows import MOST_ROWS, default_rows
from oversharp.diagnostics.samplers.vllm_engine import (
    EngineLostError,
    EnginePlan,
    EngineProcess,
    VllmEngine,
    engine_environment,
)
from oversharp.diagnostics.samplers.vllm_files import lora_rank, token_bytes, why_no_swap
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

#: Parts of vLLM's messages on memory at its start that fewer concurrent responses would not fix, with hints.
_START_HINTS = (
    (
        WHILE_READING_WEIGHTS,
        "stop other programs on the GPU, pass --dtype bfloat16, or take more GPUs by --tensor-parallel",
    ),
    ("on startup is less than", "lower --gpu-memory-share, or stop other programs on the GPU"),
    ("No available memory for the cache blocks", "raise --gpu-memory-share, or take more GPUs by --tensor-parallel"),
    ("To serve at least one request", "lower --max-model-len or --max-tokens, or raise --gpu-memory-share"),
)
#: ``max_model_len`` is a multiple of this, so that a slightly longer prompt does not need another engine.
_LENGTH_STEP = 256


class SeriesEngine:
    """Keeps one engine, and swaps weights or adds an adapter for each checkpoint.

    The first runs in ``process``.
    """

    def __init__(self, context: SamplerContext, process: EngineProcess | None = None) -> None:
        self._context = context
        self._rows = context.batch_size  # None until a model is loaded
        self._engine: VllmEngine | None = None
        self._waiting = process
        self._model: tuple[Path, str | None] | None = None  # folder of the engine's weights, with their hash if known
        self._proved: str | None = None
        self._adapters: dict[str, Adapter] = {}
        self._adapter_numbers = itertools.count(1)
        self._probe_prompts: list[tuple[int, ...]] = []
        self._probed: list[DrawnRow] = []  # the engine's last answer to the probe
        self._hook = True
        self._rests = False
        self.adapter: Adapter | None = None
        self.ships_entropy = False

    @property
    def running(self) -> VllmEngine:
        """The running engine, started by ``bring``."""
        if self._engine is None:
            raise RuntimeError("no engine was started")
        return self._engine

    def bring(
        self,
        checkpoint: Checkpoint,
        loaded: LoadedModel,
        prompts: Sequence[tuple[int, ...]],
        settings: SamplingSettings,
    ) -> None:
        """Make the engine compute ``checkpoint``; ``loaded`` is the same model in transformers.

        Raises ``SamplerError`` if it differs even after a restart, ``EngineLostError`` if the engine ends.
        """
        plan = self._plan(checkpoint, loaded, prompts, settings)
        reason = self._why_another(plan, checkpoint)
        if self._rests and reason is None:
            self.running.wake()
            self._rests = False
        if self._engine is not None and reason is None and self._proved == checkpoint.weights_hash:
            return
        self._proved = None
        fresh, swapped = self._engine is None or reason is not None, False
        if reason is not None:
            self._context.note(f"{checkpoint.label}: restarting vLLM, {reason}")
        if not fresh and not self._holds(checkpoint):
            swapped = self._swap(checkpoint)
            if not swapped:
                self._context.note(f"{checkpoint.label}: restarting vLLM, its prefix cache could not be reset")
                fresh = True
        if fresh:
            self._start(plan, checkpoint, prompts)
        self.adapter = self._add_adapter(checkpoint)
        before = self._probed
        result = self._probe(checkpoint.label, loaded, fresh=fresh)
        tolerance = tolerance_nats(result, plan.dtype)
        fault = _fault_of_swap(result, before, self._probed, tolerance) if swapped else None
        if fault is not None:
            self._context.note(f"{checkpoint.label}: restarting vLLM, {fault} after the swap of weights")
            self._start(plan, checkpoint, prompts)
            self.adapter = self._add_adapter(checkpoint)
            result = self._probe(checkpoint.label, loaded, fresh=True)
            tolerance = tolerance_nats(result, plan.dtype)
        self._require_agreement(result, checkpoint, tolerance)
        self._check_entropy(result, plan)
        self._proved = checkpoint.weights_hash

    def recover(self, error: EngineLostError, checkpoint: Checkpoint, *, give_up: bool) -> None:
        """Close the engine that ended, and plan the next with half the rows.

        Raise ``SamplerError`` to give up.
        """
        self.close()
        if give_up:
            memory = "--cpu-cache-gib" if self._context.models.device.type == "cpu" else "--gpu-memory-share"
            raise SamplerError(
                f"{checkpoint.label}: the vLLM engine ended repeatedly ({error}); "
                f"lower --batch-size, --max-model-len or {memory}, or use --sampler transformers"
            )
        self._rows = max(1, (self._rows or MOST_ROWS) // 2)
        self._context.note(
            f"{checkpoint.label}: the vLLM engine ended ({error}); restarted with "
            f"{plural(self._rows, 'concurrent response')}"
        )

    def rest(self) -> None:
        """Release the engine's memory until ``bring``.

        An engine that cannot is ended, and another started later.
        """
        if self._engine is None or self._rests:
            return
        try:
            self._engine.rest()
            self._rests = True
        except EngineLostError as error:
            self._context.note(f"the vLLM engine cannot sleep ({error}); it is ended, and restarted when needed")
            self.close()

    def close(self) -> None:
        """End the engine's process."""
        for running in (self._engine, self._waiting):
            if running is not None:
                running.close()
        self._waiting = None
        self._rests = False
        self._engine = self._model = self._proved = self.adapter = None
        self._adapters = {}

    # ---------------------------------------------------------------- start and swap

    def _plan(
        self,
        checkpoint: Checkpoint,
        loaded: LoadedModel,
        prompts: Sequence[tuple[int, ...]],
        settings: SamplingSettings,
    ) -> EnginePlan:
        """Return the plan of the engine for this call, no smaller than the running one."""
        needed = max(map(len, prompts)) + settings.max_tokens
        given = self._context.engine.max_model_len
        if given is not None and given < needed:
            raise SamplerError(
                f"--max-model-len {given}: the longest prompt and --max-tokens {settings.max_tokens} need {needed}; "
                f"raise it to {needed}, or leave it out"
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

    def _why_another(self, plan: EnginePlan, checkpoint: Checkpoint) -> str | None:
        """Return why the running engine cannot serve; None if it can, or there is none."""
        if self._engine is None or self._model is None:
            return None
        current = self._engine.plan
        if plan.max_model_len > current.max_model_len:
            return f"its prompts and responses take up to {plan.max_model_len} tokens"
        if plan.max_lora_rank > current.max_lora_rank:
            return f"it is an adapter and needs room for rank {plan.max_lora_rank}"
        if self._holds(checkpoint):
            return None
        if current.max_lora_rank or checkpoint.kind == "lora":
            return "it belongs to another base model"
        return why_no_swap(self._model[0], plan.model)

    def _holds(self, checkpoint: Checkpoint) -> bool:
        """Whether the engine has the weights of ``checkpoint``, or of its base model."""
        if self._model is None:
            return False
        path, weights_hash = self._model
        if checkpoint.kind == "lora":
            return path == (checkpoint.base_path or checkpoint.path).resolve()
        return path == checkpoint.path.resolve() and weights_hash in (None, checkpoint.weights_hash)

    def _start(self, plan: EnginePlan, checkpoint: Checkpoint, prompts: Sequence[tuple[int, ...]]) -> None:
        process, self._waiting = self._waiting or self._new_process(), None
        self.close()
        try:
            self._engine = VllmEngine(plan, process)
            if self._hook:
                self._engine.hook_entropy()
        except EngineLostError as error:
            if (hint := start_hint(str(error))) is not None:
                self.close()
                raise SamplerError(f"{checkpoint.label}: vLLM does not start ({error}); {hint}") from None
            if error.short_of_memory:
                raise
            raise self._does_not_run(checkpoint.label, error) from None
        self.ships_entropy = self._hook
        self._model = (plan.model, checkpoint.weights_hash if checkpoint.kind == "full" else None)
        long = long_prompt(max(prompts, key=len), max_model_len=plan.max_model_len)
        self._probe_prompts, self._probed = [*probe_prompts(prompts), long], []

    def _new_process(self) -> EngineProcess:
        models = self._context.models
        environment = engine_environment(models.device_name, self._context.engine, os.environ, dtype=models.dtype)
        return EngineProcess(environment)

    def _swap(self, checkpoint: Checkpoint) -> bool:
        """Read the checkpoint's weights into the engine.

        False if its prefix cache kept the old ones.
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
        """Draw greedy tokens after the same prompts at every swap, and compare them."""
        try:
            rows = self._probe_rows()
        except EngineLostError as error:
            if not fresh or error.short_of_memory:
                raise
            if not self.ships_entropy:
                raise self._does_not_run(label, error) from None
            # the hook may be the cause: the next engine runs without it
            self._unhook(f"vLLM fails with the entropy hook ({error})")
            raise
        self._probed = rows
        return compare(loaded, self._probe_prompts, rows)

    def _probe_rows(self) -> list[DrawnRow]:
        """Draw all probes in one batch of constant shape, which determines the last bits."""
        draws = [self._probe_draw(-1 - place, prompt_ids) for place, prompt_ids in enumerate(self._probe_prompts)]
        self.running.submit(*draws)
        rows: dict[int, DrawnRow] = {}
        while len(rows) < len(draws):
            drawn = self.running.collect()
            if drawn is not None and drawn.ticket < 0:  # else from a call that was aborted
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
            entropy=self.ships_entropy,
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
                f"{checkpoint.label}: log-probabilities of vLLM and transformers differ, even after a restart (maximum "
                f"{result.logp:.2g} nats, allowed {tolerance:.2g}); use --sampler transformers"
            )

    def _check_entropy(self, result: ProbeResult, plan: EnginePlan) -> None:
        if result.entropy is not None and result.entropy > ENTROPY_TOLERANCE_NATS[plan.dtype]:
            self._unhook(f"entropies of vLLM are wrong by {result.entropy:.2g} nats")

    def _does_not_run(self, label: str, error: EngineLostError) -> SamplerError:
        self.close()
        return EngineRefusedError(f"{label}: vLLM cannot run this model here ({error}); use --sampler transformers")

    def _unhook(self, why: str) -> None:
        """Draw without entropies from now on; an unused hook has no effect."""
        self._hook = self.ships_entropy = False
        self._context.note(f"{why}; the entropy is computed with transformers instead")


def start_hint(said: str) -> str | None:
    """Return a hint on memory that an engine lacks at its start for any number of responses.

    Else None.

    >>> start_hint("ValueError: Free memory on device cuda:0 (3.1/79.2 GiB) on startup is less than desired")
    'lower --gpu-memory-share, or stop other programs on the GPU'
    >>> start_hint("while reading the weights: OutOfMemoryError: CUDA out of memory.")
    'stop other programs on the GPU, pass --dtype bfloat16, or take more GPUs by --tensor-parallel'
    >>> start_hint("OutOfMemoryError: warming up with 256 dummy requests; try lowering `max_num_seqs`") is None
    True
    """
    return next((hint for words, hint in _START_HINTS if words in said), None)


def _fault_of_swap(
    result: ProbeResult,
    before: Sequence[DrawnRow],
    now: Sequence[DrawnRow],
    tolerance: float,
) -> str | None:
    """Return what is wrong with an engine after a swap of weights; None if nothing is detected.

    Half precision is too coarse to distinguish neighbouring checkpoints by their difference from transformers. But
    other weights change some last bit, and an engine with the old weights repeats its answer to the last bit.
    """
    if not result.model_is_finite:
        return None  # a fault of the model
    if result.logp > tolerance:
        return f"its log-probabilities are wrong by {result.logp:.2g} nats"
    if len(before) == len(now) and all(map(_same, before, now)):
        return "its answer is bit-identical to that of the previous checkpoint"
    return None


def _same(one: DrawnRow, other: DrawnRow) -> bool:
    return one.token_ids == other.token_ids and np.array_equal(one.logp_T, other.logp_T)
