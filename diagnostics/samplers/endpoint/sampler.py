"""Sampler that asks OpenAI-compatible servers. Seeded samples of a vLLM server equal those of an engine here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Protocol

import numpy as np

from oversharp.diagnostics.http.pace import ROWS_PER_REQUEST
from oversharp.diagnostics.http.prices import money_text
from oversharp.diagnostics.http.transport import RefusedError
from oversharp.diagnostics.models.encoders import Encoder, load_encoder
from oversharp.diagnostics.models.tokens import response_ids, response_texts
from oversharp.diagnostics.records.errors import ConfigError, EndpointError
from oversharp.diagnostics.records.types import Checkpoint, ForcedResponse, Problem, Sample, SamplingSettings
from oversharp.diagnostics.samplers.contract import EncodedResponse, SamplerContext, SampleRequest, SamplerReport
from oversharp.diagnostics.samplers.endpoint.batches import stream_batches
from oversharp.diagnostics.samplers.endpoint.completions import Completion, CompletionRequest, ServedResponse
from oversharp.diagnostics.samplers.endpoint.fingerprint import (
    FINGERPRINT_STAGE,
    PROMPTS,
    ROUNDING_NATS,
    TOKENS,
    AnswerFingerprint,
    difference_nats,
    make_answer,
)
from oversharp.diagnostics.samplers.endpoint.placement import Placement, ServedModel
from oversharp.diagnostics.samplers.endpoint.scores import NoScoresError, ScoreRequest, request_scores
from oversharp.diagnostics.samplers.endpoint.usage import Usage, oddities, read_usage, report_usage
from oversharp.diagnostics.samplers.seeded import PlannedDraw, plan_draws

#: Times that a checkpoint is placed again because connections are lost.
_PLACE_TRIES = 5
_DROP = "keep others from changing them, drop these samples with `oversharp drop`, and run the audit again"
_CONTINUE = (
    "no sample of the new weights was kept. A server that was restarted has its first weights again: run the same "
    "command again"
)


class Verify(Protocol):
    """Function that raises ``EndpointError`` if the server's weights changed.

    ``are_kept``: whether results of both weights may be in the store.
    """

    def __call__(self, *, are_kept: bool) -> None: ...


class EndpointSampler:
    """Sampler that sends prompts as token ids to a server's /v1/completions.

    The context's ``batch_size`` limits the number of concurrent responses. Samples do not depend on it.
    """

    name = "endpoint"
    most_rows = ROWS_PER_REQUEST

    def __init__(self, context: SamplerContext) -> None:
        if context.endpoint is None:
            raise ConfigError("--sampler endpoint: no server is given; add --endpoint URL or --serve COMMAND")
        settings, most = context.endpoint, context.batch_size
        self._rows_per_request = min(self.most_rows, most or self.most_rows)
        if most is not None:
            limits = replace(settings.limits, concurrent=max(1, most // self._rows_per_request))
            settings = replace(settings, limits=limits)
        self._context, self._settings = context, settings
        self._placement = Placement(settings, context.note)
        self._fingerprints: dict[str, AnswerFingerprint] = {}  # checkpoint id → first fingerprint of this process
        self._probes: list[PlannedDraw] = []  # their prompts are those of the fingerprints
        self._reports: list[SamplerReport] = []
        self._notes: set[str] = set()
        self._cost = 0.0
        self._obstacles: dict[str, str | None] = {}  # checkpoint id → why its server cannot score responses
        self._noise = 0.0  # largest difference of two fingerprints of the same weights

    def sample(
        self, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Yield finished samples as they arrive, about ``batches.BATCH_ROWS`` at a time.

        Raises ``EndpointError`` if no server answers, if it refuses a request, or if it answers with other weights than
        before.
        """
        encoder = None
        if checkpoint.kind != "recorded":  # its files are here
            encoder = load_encoder(checkpoint, trust_remote_code=self._context.engine.trust_remote_code)
        draws = plan_draws(encoder, checkpoint, requests, settings, most=self._rows_per_request)
        if not draws:
            return
        with self._serve(checkpoint, encoder, draws, settings) as (served, verify):

            def ask(draw: PlannedDraw) -> Awaitable[Completion]:
                return served.client.complete(make_request(served.model, encoder, draw, settings))

            for done in stream_batches(
                served.client.transport,
                draws,
                ask,
                lambda: verify(are_kept=False),
                count=lambda completion: len(completion.responses),
            ):
                rows = [(draw, completion.responses) for draw, completion in done]
                yield self._samples(served, encoder, rows, settings)
            verify(are_kept=True)
            for line in oddities(served):
                self._note_once(line)

    def can_score(self, checkpoint: Checkpoint, problems: Sequence[Problem], settings: SamplingSettings) -> bool:
        """Return whether the server returns log-probabilities of prompts. Prints where responses are scored.

        Raises ``EndpointError`` as ``sample``, and if they differ from those of the server's greedy responses.
        """
        if checkpoint.checkpoint_id not in self._obstacles:
            encoder = load_encoder(checkpoint, trust_remote_code=self._context.engine.trust_remote_code)
            with self._serve(checkpoint, encoder, self._probe_draws(encoder, checkpoint, problems, settings), settings):
                pass
        obstacle = self._obstacles[checkpoint.checkpoint_id]
        self._note_once(
            "given responses are scored by the server, which returns no entropies"
            if obstacle is None
            else f"given responses are scored here, because {obstacle}"
        )
        return obstacle is None

    def score(
        self,
        checkpoint: Checkpoint,
        responses: Sequence[EncodedResponse],
        problems: Sequence[Problem],
        settings: SamplingSettings,
        *,
        one_by_one: bool,
    ) -> Iterator[list[ForcedResponse]]:
        """Yield scores as they arrive, if ``can_score``.

        Raises ``EndpointError`` as ``sample``. vLLM needs room for one more token than prompt and response have.
        """
        encoder = load_encoder(checkpoint, trust_remote_code=self._context.engine.trust_remote_code)
        draws = self._probe_draws(encoder, checkpoint, problems, settings)
        with self._serve(checkpoint, encoder, draws, settings) as (served, verify):
            requests = [ScoreRequest(model=served.model, response=response) for response in responses]

            turn = asyncio.Lock() if one_by_one else nullcontext()

            async def ask(request: ScoreRequest) -> ForcedResponse:
                async with turn:
                    return await request_scores(served.client, request)

            for done in stream_batches(served.client.transport, requests, ask, lambda: verify(are_kept=False)):
                yield [scored for _, scored in done]
            verify(are_kept=True)

    def take_reports(self) -> list[SamplerReport]:
        """Return fingerprints and usage since the last call, for the store."""
        reports, self._reports = self._reports, []
        return reports

    def rest(self) -> None:
        """Stop the server that ``--serve`` started, so that its memory is free for the model that scores responses."""
        self._placement.rest()

    def close(self) -> None:
        """Stop servers that ``--serve`` started, close the connections, and release the model."""
        self._placement.close()
        self._context.models.close()
        if self._cost:
            self._context.note(f"cost of the server's tokens in this run, by --prices: {money_text(self._cost)}")
            self._cost = 0.0

    def _place(
        self,
        checkpoint: Checkpoint,
        encoder: Encoder | None,
        draws: Sequence[PlannedDraw],
        settings: SamplingSettings,
    ) -> tuple[ServedModel, AnswerFingerprint, Usage]:
        """Make the server serve the checkpoint, and return its first fingerprint and the usage before.

        If a connection is lost before that, the server may have been restarted with other weights: this starts again.
        """
        for _ in range(_PLACE_TRIES):
            served = self._placement.place_checkpoint(checkpoint)
            before, n_lost = read_usage(served), served.client.transport.n_lost
            try:
                start = self._answer(served, encoder, draws, settings)
                is_sure = served.client.transport.n_lost == n_lost and self._placement.is_placed(checkpoint)
            except EndpointError:
                self._placement.forget_weights()
                raise
            if is_sure:
                return served, start, before
            self._placement.forget_weights()
        raise EndpointError(
            f"{checkpoint.label}: connections to {served.client.transport.url} were lost {_PLACE_TRIES} times while it "
            "loaded the weights; check the server's log, then run the same command again"
        )

    @contextmanager
    def _serve(
        self,
        checkpoint: Checkpoint,
        encoder: Encoder | None,
        draws: Sequence[PlannedDraw],
        settings: SamplingSettings,
    ) -> Iterator[tuple[ServedModel, Verify]]:
        """Make the server answer with the checkpoint, and yield its model and a function that verifies its weights.

        Reports the fingerprint and the usage.
        """
        began_s = time.monotonic()
        served, start, before = self._place(checkpoint, encoder, draws, settings)
        try:
            self._require_same(
                checkpoint, self._fingerprints.setdefault(checkpoint.checkpoint_id, start), start, are_kept=False
            )
            if self._settings.scores_responses:
                self._obstacles[checkpoint.checkpoint_id] = self._check_scores(checkpoint, served, start)
            if self._settings.compares_weights or self._obstacles.get(checkpoint.checkpoint_id):
                self._compare_with_weights(checkpoint, start)
            note = replace(start, noise=self._noise).as_json()
            self._reports.append(SamplerReport(stage=FINGERPRINT_STAGE, wall_s=time.monotonic() - began_s, note=note))

            def verify(*, are_kept: bool) -> None:
                now = self._answer(served, encoder, draws, settings)
                if not self._placement.is_placed(checkpoint):
                    raise _changed_error(checkpoint, are_kept=are_kept)
                self._require_same(checkpoint, start, now, are_kept=are_kept)

            yield served, verify
        except EndpointError:
            self._placement.forget_weights()  # a server that was restarted has its first weights again
            raise
        finally:
            report, cost = report_usage(served, before, self._settings.prices)
            self._reports.append(report)
            self._cost += cost

    # ---------------------------------------------------------------- samples

    def _samples(
        self,
        served: ServedModel,
        encoder: Encoder | None,
        done: Sequence[tuple[PlannedDraw, tuple[ServedResponse, ...]]],
        settings: SamplingSettings,
    ) -> list[Sample]:
        rows = [(draw, draw.first + place, row) for draw, drawn in done for place, row in enumerate(drawn)]
        token_rows = [row.token_ids or self._encode(encoder, row) for _, _, row in rows]
        # an engine here gives the text of its tokens, without special tokens
        known = [token_ids for token_ids in token_rows if token_ids is not None] if encoder is not None else []
        texts = dict(zip(known, response_texts(encoder.tokenizer, known), strict=True)) if encoder is not None else {}
        # a server's log-probabilities may be those of the truncated or scaled distribution
        is_plain = (settings.temperature, settings.top_p, settings.top_k) == (1.0, 1.0, 0)
        has_raw_logps = served.client.kind == "vllm" or is_plain
        samples = []
        for (draw, index, row), token_ids in zip(rows, token_rows, strict=True):
            logps = row.logps if row.token_ids and has_raw_logps else None
            is_ended = row.finish_reason == "stop"
            if encoder is not None and row.token_ids:
                is_ended = row.token_ids[-1] in encoder.end_ids
            samples.append(
                Sample(
                    problem_id=draw.problem_id,
                    sample_index=index,
                    greedy=draw.greedy,
                    text=texts[row.token_ids] if encoder is not None and row.token_ids else row.text,
                    token_ids=token_ids,
                    finish_reason="stop" if is_ended else "length",
                    # as in an engine here, which sums float32 values
                    logp_sum_raw=None if logps is None else float(np.array(logps, np.float32).sum(dtype=np.float64)),
                )
            )
        return samples

    def _encode(self, encoder: Encoder | None, row: ServedResponse) -> tuple[int, ...] | None:
        """Return the tokens of a response whose text alone is known, for its length. None without tokenizer."""
        if encoder is None:
            self._note_once("the server returns no token ids: lengths and log-probabilities of responses are unknown")
            return None
        self._note_once(
            "the server returns no token ids: the tokens of responses are those of their texts, and log-probabilities "
            "are unknown"
        )
        ids = response_ids(encoder.tokenizer, row.text)
        return ids if row.finish_reason == "stop" else ids[:-1]

    # ---------------------------------------------------------------- verification

    def _answer(
        self, served: ServedModel, encoder: Encoder | None, draws: Sequence[PlannedDraw], settings: SamplingSettings
    ) -> AnswerFingerprint:
        """Return the greedy responses to the probe prompts, which are the same for all checkpoints."""
        if not self._probes:
            # the smallest hashes: an audit that is continued with other problems has probably the same
            by_id = {draw.problem_id: draw for draw in draws}
            self._probes = [by_id[problem_id] for problem_id in sorted(by_id)[:PROMPTS]]
        greedy = [
            replace(
                make_request(served.model, encoder, replace(draw, n=1, seed=None, greedy=True), settings),
                end_ids=(),
                max_tokens=min(TOKENS, settings.max_tokens),
            )
            for draw in self._probes
        ]
        requests = list(dict.fromkeys(greedy))
        replies = dict(served.client.transport.stream(requests, served.client.complete))
        return AnswerFingerprint(
            answers=tuple(make_answer(request.prompt, replies[request].responses[0]) for request in requests)
        )

    def _require_same(
        self, checkpoint: Checkpoint, first: AnswerFingerprint, now: AnswerFingerprint, *, are_kept: bool
    ) -> None:
        """Raise ``EndpointError`` if the weights changed. ``are_kept``: whether samples of both may be in the store."""
        difference = difference_nats(first, now)
        if difference is None or difference <= ROUNDING_NATS:
            self._noise = max(self._noise, difference or 0.0)
            return
        if any(answer.logps is None for answer in now.answers):
            # without log-probabilities, rounding of a service with many users cannot be excluded
            self._note_once(f"{checkpoint.label}: the server's greedy responses changed; were its weights replaced?")
        else:
            raise _changed_error(checkpoint, are_kept=are_kept)

    def _probe_draws(
        self, encoder: Encoder, checkpoint: Checkpoint, problems: Sequence[Problem], settings: SamplingSettings
    ) -> list[PlannedDraw]:
        """Return draws of the problems whose prompts ``_answer`` uses, for a process that samples nothing."""
        chosen = sorted(problems, key=lambda problem: problem.problem_id)[:PROMPTS]
        requests = [SampleRequest(problem=problem, sample_indices=(), greedy=True) for problem in chosen]
        return plan_draws(encoder, checkpoint, requests, settings)

    def _check_scores(self, checkpoint: Checkpoint, served: ServedModel, answers: AnswerFingerprint) -> str | None:
        """Return why the server cannot score given responses, None if it can.

        It scores its own greedy responses. Raises ``EndpointError`` if rounding cannot explain the difference from the
        log-probabilities that it returned when it generated them.
        """
        transport = served.client.transport
        if served.client.kind != "vllm":
            return f"{transport.url} is not vLLM"
        own = {
            ScoreRequest(
                model=served.model,
                response=EncodedResponse(
                    problem_id="", response_id=answer.text, prompt_ids=prompt_ids, token_ids=answer.token_ids
                ),
            ): answer.logps
            for prompt_ids, answer in zip(self._probe_prompts, answers.answers, strict=True)
            if answer.token_ids and answer.logps
        }
        if len(own) < len(answers.answers):
            return f"{transport.url} returns no log-probabilities"
        try:
            scored = dict(transport.stream(own, lambda request: request_scores(served.client, request)))
        except NoScoresError as error:
            return str(error)
        except RefusedError as error:
            if error.status not in (400, 422):
                raise
            return str(error)
        differences = [
            abs(sampled_logp - logp)
            for request, logps in own.items()
            for sampled_logp, logp in zip(logps, scored[request].token_logps, strict=True)
        ]
        if max(differences) > ROUNDING_NATS:
            raise EndpointError(
                f"{checkpoint.label}: the server's log-probabilities of its greedy responses differ by up to "
                f"{max(differences):.2g} nats from those of the same responses as a prompt; start vLLM with "
                "--logprobs-mode raw_logprobs, or remove --panel"
            )
        return None

    @property
    def _probe_prompts(self) -> list[tuple[int, ...]]:
        """Tokens of the prompts of the fingerprints, in their order."""
        return list(dict.fromkeys(draw.prompt_ids for draw in self._probes))

    def _compare_with_weights(self, checkpoint: Checkpoint, answers: AnswerFingerprint) -> None:
        """Compare the server's log-probabilities with those of the checkpoint's weights in transformers.

        Raises ``EndpointError`` if rounding cannot explain the difference.
        """
        from oversharp.diagnostics.samplers.vllm_messages import DrawnRow
        from oversharp.diagnostics.samplers.vllm_probe import compare, tolerance_nats

        rows = [
            DrawnRow(token_ids=row.token_ids, logp_T=np.array(row.logps, np.float32), entropy_T=None)
            for row in answers.answers
            if row.token_ids and row.logps
        ]
        if len(rows) < len(answers.answers):
            self._note_once("the server returns no log-probabilities, so its weights are not compared with the files")
            return
        loaded = self._context.models.load(checkpoint)
        result = compare(loaded, self._probe_prompts, rows)
        tolerance = tolerance_nats(result, self._context.models.dtype)
        if result.model_is_finite and result.logp > (tolerance if self._settings.knows_dtype else ROUNDING_NATS):
            raise EndpointError(
                f"{checkpoint.label}: log-probabilities of the server differ by up to {result.logp:.2g} nats from "
                f"those of {checkpoint.path}: it serves other weights; check its model, or its --served-model-name"
            )
        if result.model_is_finite and result.logp > tolerance:
            self._note_once(
                f"{checkpoint.label}: log-probabilities of the server and of {self._context.models.dtype} here differ "
                f"by up to {result.logp:.2g} nats; if the server has another floating-point type, pass it as --dtype"
            )

    def _note_once(self, line: str) -> None:
        if line not in self._notes:
            self._notes.add(line)
            self._context.note(line)


def _changed_error(checkpoint: Checkpoint, *, are_kept: bool) -> EndpointError:
    return EndpointError(
        f"{checkpoint.label}: the server's greedy responses changed while it was sampled: its weights were "
        f"replaced; {_DROP if are_kept else _CONTINUE}"
    )


def make_request(
    model: str, encoder: Encoder | None, draw: PlannedDraw, settings: SamplingSettings
) -> CompletionRequest:
    """Return the request of a draw. Without encoder, the server encodes the prompt's text."""
    text = settings.prompt_template.replace("{prompt}", draw.problem.prompt)
    return CompletionRequest(
        model=model,
        prompt=text if encoder is None else draw.prompt_ids,
        chat=encoder is None and settings.chat,
        system_prompt=settings.system_prompt,
        chat_args=settings.chat_args,
        n=draw.n,
        seed=draw.seed,
        end_ids=() if encoder is None else encoder.end_ids,
        temperature=0.0 if draw.greedy else settings.temperature,
        top_p=1.0 if draw.greedy else settings.top_p,
        top_k=0 if draw.greedy else settings.top_k,
        max_tokens=settings.max_tokens,
    )
