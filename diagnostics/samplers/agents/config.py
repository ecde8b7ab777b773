"""Flags of audits of agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.settings import require_at_least, require_storable
from oversharp.diagnostics.samplers.endpoint.config import ENDPOINT, EndpointConfig
from oversharp.diagnostics.verifiers.own_file import is_own

DEFAULT_MAX_TURNS = 8


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AgentConfig(EndpointConfig):
    """An environment whose tools the model calls in several turns, behind a server.

    Attributes
    ----------
    environment
        FILE.py:Class whose methods are the model's tools. The file runs on this machine, in at most --grader-workers
        processes, with the limits of a grader. Its get_reward grades, else the verifier. See docs/trajectories.md.
    max_turns
        Largest number of turns of the model in a trajectory. Default: 8.
    """

    environment: Annotated[str | None, ENDPOINT] = None
    max_turns: Annotated[int | None, ENDPOINT] = None

    def require_endpoint(self, sampler: str, *, uses_ray: bool) -> None:
        """Raise ``ConfigError`` as ``EndpointConfig``, and for an environment without a server."""
        super().require_endpoint(sampler, uses_ray=uses_ray)
        require_at_least("--max-turns", self.max_turns, 1)
        require_storable("--max-turns", self.max_turns)
        if self.environment is None:
            if self.max_turns is not None:
                raise ConfigError("--max-turns: only trajectories have several turns; add --environment FILE.py:Class")
            return
        if not is_own(self.environment):
            raise ConfigError(f"--environment {self.environment}: not FILE.py:Class")
        if not self.has_endpoint:
            raise ConfigError(
                "--environment: trajectories are sampled from a server only; add --endpoint URL or --serve COMMAND"
            )

    @property
    def used_max_turns(self) -> int | None:
        """``max_turns``; by default 8, and None without an environment."""
        return None if self.environment is None else self.max_turns or DEFAULT_MAX_TURNS
