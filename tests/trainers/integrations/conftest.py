"""Fork live audits; import TRL and verl before warnings of their imports become errors."""

from __future__ import annotations

import functools
import warnings
from importlib import import_module
from types import SimpleNamespace

import pytest

from oversharp.trainers.integrations import live
from tests.preloaded import ForkedAudit, RunningServer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import_module("oversharp.trainers.integrations.trl")
    import_module("oversharp.trainers.integrations.verl")


@pytest.fixture
def _forked_audits(commands: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the audits of this test to save the time of imports; ``test_live`` runs real ones."""
    started = functools.partial(ForkedAudit, commands.socket_path)
    monkeypatch.setattr(live, "subprocess", SimpleNamespace(**vars(live.subprocess) | {"Popen": started}))
