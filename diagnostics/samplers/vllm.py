"""The sampler for real models: one vLLM engine serves a whole series, its weights swapped from checkpoint to checkpoint.

The engine runs in a process of its own (``vllm_process``) and is not believed: after every start and swap a probe
compares its log-probabilities with those of transformers (``vllm_probe``).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from diagnostics.errors import SamplerError
from diagnostics.models import LoadedModel, encode_prompt, require_fit, response_texts
from diagnostics.samplers.contract import SampleRequest, SamplerContext
from diagnostics.samplers.drawing import row_key
from diagnostics.samplers.vllm_messages import Draw, DrawnRow
from diagnostics.samplers.vllm_engine import EngineLostError
from diagnostics.samplers.vllm_series import SeriesEngine
from diagnostics.types import Checkpoint, Problem, Sample, SamplingSettings

#: Responses of one request: they come back together, so this bounds what a kill can lose and what waits in memory.
ROWS_PER_REQUEST = 64
#: A batch is handed on when it has this many rows, or is this old.
BATCH_ROWS = 1024
BATCH_S = 5.0
#: vLLM raises lower temperatures to this.
LEAST_TEMPERATURE = 0.01
#: Starts in a row that fail or bring no response before the audit gives up.
MAX_FAILURES = 3


@dataclass(frozen=True, kw_only=True)
class _Job:
    """Responses ``first`` to ``first + n - 1`` of one problem, or its greedy one."""

    problem: Problem
    problem_id: str
    first: int
    n: int
    greedy: bool
    prompt_ids: tuple[int, ...]
    seed: int | None


class VllmSampler:
    """Draws responses with vLLM.

    ``batch_size`` is in rows (responses) that the engine works on at a time, by default 256; it is halved when the
    engine runs out of memory. Samples do not depend on it.
    """

    name = "vllm"

    def __init__(self, context: SamplerContext) -> None:
        self._models = context.models
        self._note = context.note
        self._engines = SeriesEngine(context)
        self._tickets = itertools.count()

    def sample(
        self, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Yield finished samples as they come, about ``BATCH_ROWS`` at a time.

        Raises ``SamplerError`` if a prompt and ``max_tokens`` exceed the context, the model gives NaN, vLLM does not
        run the model or computes another one than transformers, or the engine dies again and again.
        """
        if 0 < settings.temperature < LEAST_TEMPERATURE:
            raise SamplerError(
                f"--temperature {settings.temperature}: vLLM draws at {LEAST_TEMPERATURE} or above; "
                "raise it, or use --sampler transformers"
            )
        loaded = self._models.load(checkpoint)
        jobs = _jobs(loaded, checkpoint, requests, settings)
        missing = {next(self._tickets): job for job in jobs}
        failures = 0
        while missing:
            try:
                self._engines.bring(checkpoint, loaded, [job.prompt_ids for job in jobs], settings)
                for samples in self._draw(missing, loaded, settings):
                    failures = 0
                    yield samples
            except EngineLostError as error:
                failures += 1
                self._engines.recover(error, checkpoint, give_up=failures == MAX_FAILURES)

    def close(self) -> None:
        """End the engine's process and let go of the model; the next ``sample`` starts another."""
        self._engines.close()
        self._models.close()

    def _draw(
        self, missing: dict[int, _Job], loaded: LoadedModel, settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Keep the engine fed until nothing is missing; a job leaves ``missing`` once its samples are handed on."""
        engine = self._engines.running
        most_rows = 2 * engine.plan.max_num_seqs + ROWS_PER_REQUEST
        waiting = iter(list(missing.items()))
        rows_in_flight = 0
        done: list[tuple[_Job, tuple[DrawnRow, ...]]] = []
        finished: list[int] = []
        since = time.monotonic()
        whole = False
        try:
            while len(finished) < len(missing):
                while rows_in_flight < most_rows and (entry := next(waiting, None)) is not None:
                    engine.submit(self._order(*entry, loaded, settings))
                    rows_in_flight += entry[1].n
                drawn = engine.collect(timeout_s=BATCH_S)
                if drawn is not None and drawn.ticket in missing:  # else it is of an earlier call that was broken off
                    job = missing[drawn.ticket]
                    rows_in_flight -= job.n
                    finished.append(drawn.ticket)
                    done.append((job, drawn.rows))
                full = sum(job.n for job, _ in done) >= BATCH_ROWS or time.monotonic() - since > BATCH_S
                if done and (full or len(finished) == len(missing)):
                    samples = _samples(loaded, done)
                    for ticket in finished:
                        del missing[ticket]
                    done, finished, since = [], [], time.monotonic()
                    yield samples
            whole = True
        finally:
            if not whole:
                self._engines.broken_off()

    def _order(self, ticket: int, job: _Job, loaded: LoadedModel, settings: SamplingSettings) -> Draw:
        return Draw(
            ticket=ticket,
            prompt_ids=job.prompt_ids,
            n=job.n,
            seed=job.seed,
            temperature=0.0 if job.greedy else settings.temperature,
            top_p=1.0 if job.greedy else settings.top_p,
            top_k=0 if job.greedy else settings.top_k,
            max_tokens=settings.max_tokens,
            end_ids=loaded.end_ids,
            entropy=self._engines.ships_entropy,
            adapter=self._engines.adapter,
        )
