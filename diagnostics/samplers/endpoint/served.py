"""A series whose checkpoints exist only behind servers: steps, URLs and model names in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import Checkpoint, Series, content_hash
from oversharp.diagnostics.samplers.endpoint.places import EndpointSettings, ServedPlace


def served_series(settings: EndpointSettings, *, name: str | None) -> Series:
    """Return the checkpoints of the file of ``--endpoints``, without weights. The lowest step is the base.

    A checkpoint is identified by series, step and model name, so its server may move. Raises ``ConfigError`` for fewer
    than two checkpoints, for a place that needs files, and for two steps with the same model.
    """
    file = settings.file or Path("endpoints.toml")
    where, used = f"--endpoints {file}", name or file.stem
    if len(settings.by_step) < 2:
        raise ConfigError(f"{where}: has only one checkpoint; add a [[checkpoint]] for the base, with step = 0")
    _require_names(where, settings.by_step)
    checkpoints = tuple(
        Checkpoint(
            step=step,
            label=f"step-{step}",
            path=file,
            kind="recorded",
            weights_hash=content_hash("served", used, step, place.model),
        )
        for step, place in sorted(settings.by_step.items())
    )
    return Series(name=used, path=file.resolve(), layout="served", checkpoints=checkpoints)


def _require_names(where: str, by_step: Mapping[int, ServedPlace]) -> None:
    steps: dict[tuple[str | None, str | None], int] = {}
    for step, place in by_step.items():
        if place.how not in ("auto", "names"):
            raise ConfigError(
                f"{where}: step {step} has how = {place.how!r}, which needs the checkpoint's files; pass the run's "
                "directory too, or remove it"
            )
        filled = None if place.model is None else place.model.format(step=step, label=f"step-{step}")
        other = steps.setdefault((place.url, filled), step)
        if other != step:
            raise ConfigError(f"{where}: steps {other} and {step} have the same url and model; correct one of them")
