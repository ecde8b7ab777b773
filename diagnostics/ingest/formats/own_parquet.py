"""oversharp's own Parquet: ``rollouts/step_N.parquet`` of its trainer, and samples that ``oversharp export`` wrote.

The rollouts of a run directory hold every response of the training batches, each with the step that drew it, of other
problems at every step: import them with --window. The sampling settings are those of the run's ``config.toml``.

An export holds ``data/SERIES/step_N.parquet`` with the columns of the store; its card, ``README.md``, has the sampling
settings. Responses keep the grades that they were exported with: one that its verifier did not finish with
counts as wrong, as it does in an audit.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.fields import (
    chosen_reward,
    finish_reason,
    finite,
    inner,
    optional_text,
    response_text,
    step_named,
    text,
    whole,
)
from oversharp.diagnostics.ingest.formats.rows import read_one_each
from oversharp.diagnostics.records.names import slug

_ROLLOUTS = frozenset({"step", "problem_id", "prompt", "response", "reward", "advantage", "truncated", "logp_sum"})
_EXPORT = frozenset({"series", "checkpoint", "step", "problem_id", "text", "reward", "settings_id"})
_KINDS: Mapping[str, type] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "max_tokens": int,
    "prompt_template": str,
    "system_prompt": str,
    "chat": bool,
    "seed": int,
    "dtype": str,
}
_OF_A_RUN = frozenset({"temperature", "max_tokens", "prompt_template", "system_prompt", "chat"})


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a record has its fields."""
    return record.keys() >= _ROLLOUTS or record.keys() >= _EXPORT


def place(path: Path) -> FilePlace:
    """Return the run directory or the exported series, and the last step that the file can hold."""
    folder = path.absolute().parent
    name = folder.parent.name if folder.name == "rollouts" else folder.name
    return FilePlace(run=name or None, step=step_named(path.stem, "step_"))


def settings(path: Path) -> Mapping[str, Any]:
    """From the run's configuration, or from the card of the export."""
    folder = path.absolute().parent
    if folder.name == "rollouts":
        config = _run_settings(folder.parent)
        return {name: value for name, value in _typed_settings(config).items() if name in _OF_A_RUN}
    return _typed_settings(_card_settings(folder.parent.parent / "README.md", folder.name))


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per row."""
    return read_one_each(
        path,
        lambda line, fields: (_rollout if "response" in fields else _exported)(line, fields, options.reward),
    )


def _rollout(line: int, fields: Mapping[str, Any], reward_name: str | None) -> Recorded:
    reward = chosen_reward(fields, reward_name, "reward")
    # no index: a later batch numbers the same problem's responses from 0 again
    return Recorded(
        line=line,
        prompt=text(fields, "prompt"),
        response=response_text(fields, "response", reward),
        reward=reward,
        step=whole(fields, "step"),
        problem=optional_text(fields, "problem_id"),
        n_tokens=whole(fields, "n_tokens"),
        finish_reason=None if fields.get("truncated") is None else "length" if fields["truncated"] else "stop",
        logp_sum=finite(fields.get("logp_sum")),
    )


def _exported(line: int, fields: Mapping[str, Any], reward_name: str | None) -> Recorded:
    reward = chosen_reward(fields, reward_name, "reward")
    return Recorded(
        line=line,
        prompt=text(fields, "prompt"),
        response=response_text(fields, "text", reward),
        gold=optional_text(fields, "gold"),
        reward=reward,
        step=whole(fields, "step"),
        problem=optional_text(fields, "source_id") or optional_text(fields, "problem_id"),
        index=whole(fields, "sample_index"),
        answer=optional_text(fields, "answer"),
        greedy=fields.get("greedy") is True,
        n_tokens=whole(fields, "n_tokens"),
        finish_reason=finish_reason(fields, "finish_reason"),
        logp_sum=finite(fields.get("logp_sum_raw")),
        task=optional_text(fields, "task"),
    )


def _run_settings(run: Path) -> Mapping[str, Any]:
    try:
        return inner(tomllib.loads((run / "config.toml").read_text(encoding="utf-8")), "train")
    except (OSError, ValueError):
        return {}


def _card_settings(card: Path, name: str) -> Mapping[str, Any]:
    """Return the sampling settings of a series from the card; empty without either."""
    try:
        block = card.read_text(encoding="utf-8").rpartition("```json\n")[2].partition("\n```")[0]
        listed = json.loads(block)
    except (OSError, ValueError, RecursionError):
        return {}
    rows = [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []
    return next((row for row in rows if slug(str(row.get("series"))) == name), {})


def _typed_settings(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of the right type; a column with a null has its whole numbers as 1024.0."""
    settings: dict[str, Any] = {}
    for name, kind in _KINDS.items():
        value = fields.get(name)
        if kind in (int, float):
            number = finite(value)
            if number is not None and (kind is float or number.is_integer()):
                settings[name] = kind(number)
        elif isinstance(value, kind):
            settings[name] = value
    return settings


IMPORTER = Importer(
    name="oversharp",
    title="oversharp's own rollouts and exported samples",
    suffixes=(".parquet",),
    recognises=recognises,
    place=place,
    read_samples=read_samples,
    settings=settings,
)
