"""Checkpoints of the stub server, and samplers that are closed after the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.http.pace import RequestLimits
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.samplers import SamplerContext
from oversharp.diagnostics.samplers.endpoint.places import EndpointSettings, ServedPlace
from oversharp.diagnostics.samplers.endpoint.sampler import EndpointSampler

LIMITS = RequestLimits(concurrent=8, timeout_s=5.0, tries=8, patience_s=0.0, backoff_s=0.01, most_backoff_s=0.05)


@pytest.fixture
def checkpoints(tiny_checkpoint: Path, tmp_path: Path) -> list[Checkpoint]:
    """Three checkpoints that differ only in path and hash: the stub computes responses from a name or path."""
    made = []
    for step in (0, 20, 40):
        path = tmp_path / f"checkpoint-{step}"
        path.symlink_to(tiny_checkpoint)
        made.append(Checkpoint(step=step, label=path.name, path=path, kind="full", weights_hash=f"hash{step}"))
    return made


@pytest.fixture
def opened() -> Iterator[Any]:
    """Open samplers, which are closed after the test, with their notes as ``notes``."""
    samplers: list[EndpointSampler] = []

    def open_sampler(place: ServedPlace | None, **more: Any) -> EndpointSampler:
        notes: list[str] = []
        settings = EndpointSettings(default=place, **{"limits": LIMITS, **more})
        context = SamplerContext(models=ModelHolder(device="cpu"), endpoint=settings, note=notes.append)
        samplers.append(EndpointSampler(context))
        samplers[-1].notes = notes  # type: ignore[attr-defined]
        return samplers[-1]

    yield open_sampler
    for each in samplers:
        each.close()
