"""Sampler of trajectories: a chat server and an environment."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence

from oversharp.diagnostics.models.encoders import load_encoder
from oversharp.diagnostics.records.types import Checkpoint, Problem, Sample, SamplingSettings
from oversharp.diagnostics.samplers.agents.chat import ToolChat
from oversharp.diagnostics.samplers.agents.environment import Environment
from oversharp.diagnostics.samplers.agents.episode import EpisodeRunner
from oversharp.diagnostics.samplers.agents.pool import EnvironmentPool
from oversharp.diagnostics.samplers.contract import SamplerContext, SampleRequest
from oversharp.diagnostics.samplers.endpoint.batches import stream_batches
from oversharp.diagnostics.samplers.endpoint.sampler import EndpointSampler, make_request
from oversharp.diagnostics.samplers.endpoint.usage import oddities
from oversharp.diagnostics.samplers.seeded import PlannedDraw, plan_draws
from oversharp.diagnostics.trajectories.sample import AgentSample

_NO_TOOLS = (
    "the chat template of the checkpoints does not contain tools: the model does not see them, unless the server has "
    "another template"
)


class AgentSampler(EndpointSampler):
    """Sampler whose samples are trajectories with the tools of an environment.

    The server's weights are verified as for plain responses. The context's ``batch_size`` limits the number of
    concurrent trajectories.
    """

    most_rows = 1

    def __init__(self, context: SamplerContext, environment: Environment) -> None:
        super().__init__(context)
        self._pool = EnvironmentPool(environment)

    def sample(
        self, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Yield finished trajectories as they arrive.

        Raises ``EndpointError`` as ``EndpointSampler.sample``, ``SamplerError`` if the environment cannot be reset.
        """
        encoder = None
        if checkpoint.kind != "recorded":  # its files are here
            encoder = load_encoder(checkpoint, trust_remote_code=self._context.engine.trust_remote_code)
            if "tools" not in str(encoder.tokenizer.chat_template):
                self._note_once(_NO_TOOLS)
        draws = plan_draws(encoder, checkpoint, requests, settings, most=self.most_rows)
        if not draws:
            return
        with self._serve(checkpoint, encoder, draws, settings) as (served, verify):
            chat = ToolChat(served.client, self._pool.environment.tools, self._note_once)
            runner = EpisodeRunner(chat, self._pool, settings)

            def run(draw: PlannedDraw) -> Awaitable[AgentSample]:
                return runner.run(draw, make_request(served.model, None, draw, settings))

            for done in stream_batches(served.client.transport, draws, run, lambda: verify(are_kept=False)):
                yield [sample for _, sample in done]
            verify(are_kept=True)
            for line in oddities(served):
                self._note_once(line)

    def can_score(self, checkpoint: Checkpoint, problems: Sequence[Problem], settings: SamplingSettings) -> bool:
        """Return False: trajectories have no token ids."""
        return False

    def close(self) -> None:
        """End the processes of the environment, and close like ``EndpointSampler``."""
        self._pool.close()
        super().close()
