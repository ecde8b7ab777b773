"""oversharp's Parquet: ``rollouts/step_N.parquet`` of its trainer, and exported samples.

The rollouts of a run directory are all responses of the training batches, with their steps. Each step has other
problems, so import them with --window. The sampling settings are in the run's ``config.toml``.

An export has ``data/SERIES/step_N.parquet``, with columns of the store. The sampling settings are in its data card,
``README.md``. Turns and calls of trajectories are in the column ``turns``. Responses keep their exported grades.
Responses whose grading failed count as wrong, as in an audit. If a stopping rule determined the number of samples of
each problem, only its first round is imported: the number of later samples depends on their grades.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    finite,
    get_finish_reason,
    get_optional_text,
    get_response,
    get_reward,
    get_text,
    get_whole,
    inner,
    parse_step_name,
)
from oversharp.diagnostics.ingest.formats.rows import read_one_each
from oversharp.diagnostics.records.errors import first_line
from oversharp.diagnostics.records.names import slug
from oversharp.diagnostics.trajectories.record import Turns

#: Reason why a sample of an export is not imported.
LATER_ROUND = "sampled after the first round, because the problem was not solved enough times before"
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
    """Return whether a record has the fields of a rollout or an exported sample."""
    return record.keys() >= _ROLLOUTS or record.keys() >= _EXPORT


def place(path: Path) -> FilePlace:
    """Return the run directory or the exported series, and the last step in the file."""
    folder = path.absolute().parent
    name = folder.parent.name if folder.name == "rollouts" else folder.name
    return FilePlace(run=name or None, step=parse_step_name(path.stem, "step_"))


def settings(path: Path) -> Mapping[str, Any]:
    """Return the sampling settings in the run's configuration, or in the export's data card."""
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
    reward = get_reward(fields, reward_name, "reward")
    # no index: each batch numbers the responses to a problem from 0
    return Recorded(
        line=line,
        prompt=get_text(fields, "prompt"),
        response=get_response(fields, "response", reward),
        reward=reward,
        step=get_whole(fields, "step"),
        problem=get_optional_text(fields, "problem_id"),
        n_tokens=get_whole(fields, "n_tokens"),
        finish_reason=None if fields.get("truncated") is None else "length" if fields["truncated"] else "stop",
        logp_sum=finite(fields.get("logp_sum")),
    )


def _exported(line: int, fields: Mapping[str, Any], reward_name: str | None) -> Recorded:
    if fields.get("in_first_round") is False:
        raise BadField(LATER_ROUND)
    reward = get_reward(fields, reward_name, "reward")
    return Recorded(
        line=line,
        prompt=get_text(fields, "prompt"),
        response=get_response(fields, "text", reward),
        turns=_exported_turns(fields.get("turns")),
        gold=get_optional_text(fields, "gold"),
        reward=reward,
        step=get_whole(fields, "step"),
        problem=get_optional_text(fields, "source_id") or get_optional_text(fields, "problem_id"),
        index=get_whole(fields, "sample_index"),
        answer=get_optional_text(fields, "answer"),
        greedy=fields.get("greedy") is True,
        n_tokens=get_whole(fields, "n_tokens"),
        finish_reason=get_finish_reason(fields, "finish_reason"),
        logp_sum=finite(fields.get("logp_sum_raw")),
        task=get_optional_text(fields, "task"),
    )


def _exported_turns(value: object) -> Turns | None:
    """Return the turns of an exported trajectory; None for a plain response. Raises ``BadField`` for other values."""
    try:
        return None if value is None else msgspec.convert(value, type=Turns)
    except msgspec.ValidationError as error:
        raise BadField(f"turns: {first_line(error)}") from None


def _run_settings(run: Path) -> Mapping[str, Any]:
    try:
        return inner(tomllib.loads((run / "config.toml").read_text(encoding="utf-8")), "train")
    except (OSError, ValueError):
        return {}


def _card_settings(card: Path, name: str) -> Mapping[str, Any]:
    """Return the sampling settings of a series in the data card; empty if there are none."""
    try:
        block = card.read_text(encoding="utf-8").rpartition("```json\n")[2].partition("\n```")[0]
        listed = json.loads(block)
    except (OSError, ValueError, RecursionError):
        return {}
    rows = [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []
    return next((row for row in rows if slug(str(row.get("series"))) == name), {})


def _typed_settings(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings that have the right type. Whole numbers in a column with nulls are floats."""
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
