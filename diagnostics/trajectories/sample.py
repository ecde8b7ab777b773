"""A sampled response of several turns."""

from __future__ import annotations

from dataclasses import dataclass

from oversharp.diagnostics.records.types import Grade, Sample
from oversharp.diagnostics.trajectories.record import Turns, trajectory_id


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSample(Sample):
    """A trajectory that an audit sampled. ``text`` is what the model wrote, ``turns`` its whole content.

    ``completion_tokens`` is the number of tokens that the server counted in all turns of the model, None if it counts
    none. ``reward`` has the name of the environment and its grade, None if a verifier grades ``text``.
    """

    turns: Turns
    completion_tokens: int | None
    reward: tuple[str, Grade] | None = None

    @property
    def n_tokens(self) -> int | None:
        """Number of tokens that the model generated."""
        return self.completion_tokens

    @property
    def response_id(self) -> str:
        """Content hash of the trajectory."""
        return trajectory_id(self.turns)
