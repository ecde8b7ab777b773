"""Run one trajectory: the model's turns from a chat server, and the tool calls in an environment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from oversharp.diagnostics.records.types import FinishReason, SamplingSettings
from oversharp.diagnostics.samplers.agents.chat import ChatTurn, ContextError, Message, ToolChat, parse_arguments
from oversharp.diagnostics.samplers.agents.environment import problem_fields
from oversharp.diagnostics.samplers.agents.pool import EnvironmentPool, Instance, LostInstanceError
from oversharp.diagnostics.samplers.contract import row_key
from oversharp.diagnostics.samplers.endpoint.completions import CompletionRequest
from oversharp.diagnostics.samplers.seeded import PlannedDraw
from oversharp.diagnostics.trajectories.record import Turn, link_results, model_text, storable_turns
from oversharp.diagnostics.trajectories.sample import AgentSample
from oversharp.diagnostics.verifiers.own_file import grade_outcome

#: Token limit of a turn below which the context counts as full.
LEAST_TURN_TOKENS = 16


class EpisodeRunner:
    """Runs the trajectories of one checkpoint. Its coroutines belong to one event loop."""

    def __init__(self, chat: ToolChat, pool: EnvironmentPool, settings: SamplingSettings) -> None:
        self._chat, self._pool, self._settings = chat, pool, settings
        self._alone = asyncio.Semaphore(pool.n_processes)

    async def run(self, draw: PlannedDraw, request: CompletionRequest) -> AgentSample:
        """Return the trajectory of a draw. ``request`` is that of its first turn.

        Raises ``EndpointError`` as ``ToolChat.ask``, ``SamplerError`` if the environment cannot be reset.
        """
        try:
            async with self._pool.open() as instance:
                return await self._run(draw, request, instance)
        except LostInstanceError:  # another trajectory has ended the process
            async with self._alone, self._pool.open(is_alone=True) as instance:
                return await self._run(draw, request, instance)

    async def _run(self, draw: PlannedDraw, request: CompletionRequest, instance: Instance) -> AgentSample:
        start_text = await instance.reset(problem_fields(draw.problem))
        assert isinstance(request.prompt, str)
        first = replace(request, prompt=request.prompt + start_text)
        messages: list[Message] = first.body("other")["messages"]
        turns = [Turn(role="user", text=start_text)] if start_text else []
        finish_reason: FinishReason = "length"
        n_tokens = n_calls = 0
        counts_tokens = True
        for number in range(self._settings.max_turns or 1):
            left = self._settings.max_tokens - n_tokens
            if left <= 0:
                break
            try:
                turn_request = replace(first, seed=_turn_seed(draw.seed, number), max_tokens=left)
                reply = await self._ask(turn_request, messages, n_calls=n_calls)
            except ContextError:
                break
            turns.append(reply.turn)
            messages.append(reply.message)
            counts_tokens &= reply.n_tokens is not None
            n_tokens += reply.n_tokens or 0
            n_calls += len(reply.turn.calls)
            if reply.is_truncated:
                break
            if not reply.turn.calls:
                finish_reason = "stop"
                break
            for call in reply.turn.calls:
                text, is_error = await instance.call(call, parse_arguments(call))
                turns.append(
                    Turn(role="tool", text=text, name=call.name, call_id=call.id, is_error=True if is_error else None)
                )
                messages.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text})
        environment = self._pool.environment
        content = link_results(storable_turns(tuple(turns)))
        text = model_text(content)
        reward = None
        if draw.problem.verifier == environment.name:
            reward = (environment.name, grade_outcome(text, await instance.reward(), environment.correct_at))
        return AgentSample(
            problem_id=draw.problem_id,
            sample_index=draw.first,
            greedy=draw.greedy,
            text=text,
            token_ids=None,
            finish_reason=finish_reason,
            logp_sum_raw=None,
            turns=content,
            completion_tokens=n_tokens if counts_tokens else None,
            reward=reward,
        )

    async def _ask(self, request: CompletionRequest, messages: Sequence[Message], *, n_calls: int) -> ChatTurn:
        """Return the next turn. A later turn gets fewer tokens if only these fit into the context.

        Raises ``ContextError`` if hardly any fit.
        """
        while True:
            try:
                return await self._chat.ask(request, messages, n_calls=n_calls)
            except ContextError as error:
                if n_calls == 0:  # the settings do not fit
                    raise error.__cause__ or error from None
                if request.max_tokens < LEAST_TURN_TOKENS:
                    raise
                request = replace(request, max_tokens=request.max_tokens // 2)


def _turn_seed(seed: int | None, number: int) -> int | None:
    """Return the seed of a turn. Consecutive seeds would be those of the next samples."""
    return seed if seed is None or number == 0 else row_key(seed, number) % (1 << 62)
