"""Flags of audits of agents, and the identity of their settings."""

from __future__ import annotations

from typing import Any

import pytest

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import SamplingSettings
from oversharp.diagnostics.samplers.agents.config import AgentConfig


def test_settings_without_an_environment_keep_their_id() -> None:
    plain = SamplingSettings(sampler="endpoint")
    ids = {plain.settings_id}
    for environment in ("env.py:E@1", "env.py:E@2"):
        for max_turns in (4, 8):
            given = SamplingSettings(sampler="endpoint", environment=environment, max_turns=max_turns)
            ids.add(given.settings_id)
    assert plain.settings_id == "3a3e8778bdafefbc"
    assert len(ids) == 5


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        ({"environment": "env.py:E"}, "add --endpoint URL or --serve COMMAND"),
        ({"environment": "env.py", "endpoint": "http://a"}, "not FILE.py:Class"),
        ({"max_turns": 4, "endpoint": "http://a"}, "add --environment"),
        ({"environment": "env.py:E", "endpoint": "http://a", "max_turns": 0}, "--max-turns 0"),
    ],
)
def test_flags_that_do_not_fit_are_one_line(flags: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        AgentConfig(**flags).require_endpoint("auto", uses_ray=False)
