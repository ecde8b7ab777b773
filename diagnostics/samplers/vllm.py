"""Sampler that uses vLLM: one engine per series, with weights swapped for checkpoints.

The engine runs in a separate process (``vllm_process``). After every start and swap a probe verifies its weights: it
compares log-probabilities of vLLM with those of transformers (``vllm_probe``).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

import numpy as np

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.models.tokens import response_texts
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import Checkpoint, Sample, SamplingSettings
from oversharp.diagnostics.samplers.contract import SamplerContext, SampleRequest
from oversharp.diagnostics.samplers.seeded import ROWS_PER_REQUEST, PlannedDraw, plan_draws
from oversharp.diagnostics.samplers.vllm_engine import EngineLostError, EngineProcess
from oversharp.diagnostics.samplers.vllm_messages import Draw, DrawnRow
from oversharp.diagnostics.samplers.vllm_series import SeriesEngine

#: A batch is yielded after this number of responses, or after this number of seconds if that is earlier.
BATCH_ROWS = 1024
BATCH_S = 5.0
#: vLLM silently raises positive temperatures below this value to it.
LEAST_TEMPERATURE = 0.01
#: The audit gives up after this number of consecutive engines that fail before they return a response.
MAX_FAILURES = 3


class VllmSampler:
    """Sampler that uses vLLM.

    The context's ``batch_size`` is the number of concurrent responses, by default ``default_rows``. It is halved if the
    engine runs out of memory. Samples do not depend on it. If ``process`` is given, the first engine runs in it.
    """

    name = "vllm"

    def __init__(self, context: SamplerContext, process: EngineProcess | None = None) -> None:
        self._models = context.models
        self._engines = SeriesEngine(context, process)
        self._tickets = itertools.count()
        self._n_unfinished = 0

    def sample(
        self, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Yield finished samples as they arrive, about ``BATCH_ROWS`` at a time.

        Raises ``SamplerError`` if a prompt and ``max_tokens`` exceed the context, if the model returns NaN, if vLLM
        does not support the model, if its results differ from transformers, or if the engine fails repeatedly.
        """
        if 0 < settings.temperature < LEAST_TEMPERATURE:
            raise SamplerError(
                f"--temperature {settings.temperature}: vLLM needs at least {LEAST_TEMPERATURE}; "
                "raise --temperature, or use --sampler transformers"
            )
        loaded = self._models.load(checkpoint)
        jobs = plan_draws(loaded, checkpoint, requests, settings)
        missing = {next(self._tickets): job for job in jobs}
        failures = 0
        self._n_unfinished += 1
        try:
            while missing:
                try:
                    self._engines.load(checkpoint, loaded, [job.prompt_ids for job in jobs], settings)
                    for samples in self._draw(missing, loaded, settings):
                        failures = 0
                        yield samples
                except EngineLostError as error:
                    failures += 1
                    self._engines.recover(error, checkpoint, give_up=failures == MAX_FAILURES)
                except (GeneratorExit, SamplerError):
                    raise
                except BaseException:  # Ctrl-C may have cut a message in half, so this engine cannot be used again
                    self._engines.close()
                    raise
        finally:
            self._n_unfinished -= 1

    def rest(self) -> None:
        """Release the engine's memory. Has no effect while a ``sample`` is running."""
        if not self._n_unfinished:
            self._engines.rest()

    def close(self) -> None:
        """End the engine's process and release the model. The next ``sample`` starts another engine."""
        self._engines.close()
        self._models.close()

    def _draw(
        self, missing: dict[int, PlannedDraw], loaded: LoadedModel, settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Submit all jobs in ``missing`` and yield their samples.

        Yielded jobs are removed from ``missing``.
        """
        engine = self._engines.running
        most_rows = 2 * engine.plan.max_num_seqs + ROWS_PER_REQUEST
        waiting = iter(list(missing.items()))
        rows_in_flight = 0
        done: dict[int, tuple[DrawnRow, ...]] = {}
        since = time.monotonic()
        try:
            while missing:
                while rows_in_flight < most_rows and (entry := next(waiting, None)) is not None:
                    engine.submit(self._make_draw(*entry, loaded, settings))
                    rows_in_flight += entry[1].n
                drawn = engine.collect(timeout_s=BATCH_S)
                if drawn is not None and drawn.ticket in missing:  # skip replies to an aborted call
                    done[drawn.ticket] = drawn.rows
                    rows_in_flight -= missing[drawn.ticket].n
                n_done = sum(map(len, done.values()))
                due = n_done >= BATCH_ROWS or time.monotonic() - since >= BATCH_S
                if done and (due or len(done) == len(missing)):
                    samples = _samples(loaded, [(missing.pop(ticket), rows) for ticket, rows in done.items()])
                    yield samples
                    done, since = {}, time.monotonic()
        except (GeneratorExit, SamplerError):
            engine.abort()
            raise

    def _make_draw(self, ticket: int, job: PlannedDraw, loaded: LoadedModel, settings: SamplingSettings) -> Draw:
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
            entropy=self._engines.has_entropy,
            adapter=self._engines.adapter,
        )


def _samples(loaded: LoadedModel, done: Sequence[tuple[PlannedDraw, tuple[DrawnRow, ...]]]) -> list[Sample]:
    rows = [(job, job.first + place, row) for job, drawn in done for place, row in enumerate(drawn)]
    texts = response_texts(loaded.tokenizer, [row.token_ids for _, _, row in rows])
    return [_sample(loaded, job, index, row, text) for (job, index, row), text in zip(rows, texts, strict=True)]


def _sample(loaded: LoadedModel, job: PlannedDraw, index: int, row: DrawnRow, text: str) -> Sample:
    logp_sum = float(row.logp_T.sum(dtype=np.float64))
    entropy_sum = None if row.entropy_T is None else float(row.entropy_T.sum(dtype=np.float64))
    if not np.isfinite(logp_sum) or (entropy_sum is not None and not np.isfinite(entropy_sum)):
        raise SamplerError(
            f"problem {job.problem_id}: the model returns NaN or infinite logits for its prompt; "
            "try --dtype float32, or leave this checkpoint out"
        )
    return Sample(
        problem_id=job.problem_id,
        sample_index=index,
        greedy=job.greedy,
        text=text,
        token_ids=row.token_ids,
        finish_reason="stop" if row.token_ids[-1] in loaded.end_ids else "length",
        logp_sum_raw=logp_sum,
        entropy_sum=entropy_sum,
    )
