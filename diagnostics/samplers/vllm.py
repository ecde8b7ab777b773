"""Sampler that uses vLLM: one engine per series, with weights swapped for checkpoints.

The engine runs in a separate process (``vllm_process``). After every start and swap a probe verifies its weights: it
compares log-probabilities of vLLM with those of transformers (``vllm_probe``).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.models.tokens import encode_prompt, require_fit, response_texts
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import Checkpoint, Problem, Sample, SamplingSettings
from oversharp.diagnostics.samplers.contract import SamplerContext, SampleRequest, row_key
from oversharp.diagnostics.samplers.vllm_engine import EngineLostError, EngineProcess
from oversharp.diagnostics.samplers.vllm_messages import Draw, DrawnRow
from oversharp.diagnostics.samplers.vllm_series import SeriesEngine

#: Largest number of responses per request. They return together, so it limits the memory, and the work that is lost if
#: the process is killed.
ROWS_PER_REQUEST = 64
#: A batch is yielded after this number of responses, or after this number of seconds if that is earlier.
BATCH_ROWS = 1024
BATCH_S = 5.0
#: vLLM silently raises positive temperatures below this value to it.
LEAST_TEMPERATURE = 0.01
#: The audit gives up after this number of consecutive engines that fail before they return a response.
MAX_FAILURES = 3


@dataclass(frozen=True, kw_only=True)
class _DrawJob:
    """Responses ``first`` to ``first + n - 1`` of one problem, or its greedy response."""

    problem: Problem
    problem_id: str
    first: int
    n: int
    greedy: bool
    prompt_ids: tuple[int, ...]
    seed: int | None


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
        jobs = _jobs(loaded, checkpoint, requests, settings)
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
        self, missing: dict[int, _DrawJob], loaded: LoadedModel, settings: SamplingSettings
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

    def _make_draw(self, ticket: int, job: _DrawJob, loaded: LoadedModel, settings: SamplingSettings) -> Draw:
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


def _jobs(
    loaded: LoadedModel, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings
) -> list[_DrawJob]:
    jobs = []
    for request in requests:
        if not request.sample_indices and not request.greedy:
            continue
        problem_id = request.problem.problem_id
        prompt_ids = tuple(encode_prompt(loaded.tokenizer, request.problem, settings))
        require_fit(loaded, request.problem, prompt_ids, n_response=settings.max_tokens)
        # below 2^62, so that seed + index fits in 64 bits
        seed = row_key(settings.seed, checkpoint.checkpoint_id, problem_id) % (1 << 62)
        draws = [(first, n, False) for first, n in contiguous(request.sample_indices)]
        draws += [(0, 1, True)] if request.greedy else []
        jobs += [
            _DrawJob(
                problem=request.problem,
                problem_id=problem_id,
                first=first,
                n=n,
                greedy=greedy,
                prompt_ids=prompt_ids,
                seed=None if greedy else seed + first,
            )
            for first, n, greedy in draws
        ]
    return jobs


def contiguous(indices: Iterable[int], *, most: int = ROWS_PER_REQUEST) -> list[tuple[int, int]]:
    """Return ascending runs (first, length) of consecutive indices that cover ``indices``.

    A run has at most ``most`` indices. vLLM generates response ``i`` of a request with the request's seed plus ``i``. A
    run that starts at ``first`` gets the seed ``base + first``. So every index gets the seed ``base + index``, however
    the indices are split into runs.

    >>> contiguous([5, 0, 1, 2, 7], most=2)
    [(0, 2), (2, 1), (5, 1), (7, 1)]
    """
    runs: list[tuple[int, int]] = []
    for index in sorted(set(indices)):
        first, length = runs[-1] if runs else (index, most)
        if first + length == index and length < most:
            runs[-1] = (first, length + 1)
        else:
            runs.append((index, 1))
    return runs


def _samples(loaded: LoadedModel, done: Sequence[tuple[_DrawJob, tuple[DrawnRow, ...]]]) -> list[Sample]:
    rows = [(job, job.first + place, row) for job, drawn in done for place, row in enumerate(drawn)]
    texts = response_texts(loaded.tokenizer, [row.token_ids for _, _, row in rows])
    return [_sample(loaded, job, index, row, text) for (job, index, row), text in zip(rows, texts, strict=True)]


def _sample(loaded: LoadedModel, job: _DrawJob, index: int, row: DrawnRow, text: str) -> Sample:
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
