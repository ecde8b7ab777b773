"""tinker-cookbook: ``trajectories.jsonl``, in ``{save_dir}/{benchmark}/`` or an evaluation store.

Each row has the turns of an example as texts, ``metrics``, ``reward`` and ``logs``. The first turn is the rendered
prompt; turns of the model and the environment follow. The score is the metric ``correct``, else the reward; --reward
chooses another metric. The gold answer is ``expected`` in ``logs``. Examples that ended in an error are faults. In an
evaluation store, ``runs/{run}/metadata.json`` has the checkpoint and the sampling settings. A run without a checkpoint
is the base, step 0. Otherwise the step is in the name of a folder above. ``*_rollout_summaries.jsonl`` of the training
loop have rewards and lengths but no texts, so each of their rows is a fault.

Source: thinking-machines-lab/tinker-cookbook 9dfcc3a, ``StoredTrajectory``, ``EvalStore``,
``serialize_rollout_summaries``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    find_run_above,
    get_number,
    get_optional_text,
    get_sampling_settings,
    get_whole,
    inner,
    remove_end_token,
)
from oversharp.diagnostics.ingest.formats.rows import parse_json, read_one_each
from oversharp.diagnostics.series.folders import run_and_step

_KNOWN_BY = frozenset({"benchmark", "example_id", "turns", "reward"})
_SUMMARY = frozenset({"group_idx", "traj_idx", "total_reward", "steps"})
NO_TEXTS = "a rollout summary, which has no texts; import trajectories.jsonl of an evaluation"
#: Regular expression of the step at the end of a checkpoint's name: ``step500``, ``000040``.
_NUMBER = re.compile(r"(?:\A|[a-z_-])(\d{1,9})\Z")


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a record has the fields of a trajectory or a rollout summary."""
    return record.keys() >= _KNOWN_BY or record.keys() >= _SUMMARY


def place(path: Path) -> FilePlace:
    """Return run and step of the checkpoint in the store's metadata, else from a folder above."""
    metadata = _metadata(path)
    if metadata and metadata.get("checkpoint_path") is None and metadata.get("checkpoint_name") is None:
        return FilePlace(step=0)
    for name in ("checkpoint_name", "checkpoint_path"):
        named = metadata.get(name)
        if isinstance(named, str):
            step = run_and_step(named)[1]
            number = _NUMBER.search(named.rstrip("/").rpartition("/")[2])
            if step is None and number:
                step = int(number[1])
            if step is not None:
                return FilePlace(step=step)
    run, step = find_run_above(path.absolute().parent)
    return FilePlace(run=run, step=step)


def settings(path: Path) -> dict[str, float | int]:
    """Return the sampling settings of the evaluation."""
    return get_sampling_settings(inner(_metadata(path), "config"))


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per line."""
    greedy = settings(path).get("temperature") == 0
    return read_one_each(path, lambda line, fields: _sample(line, fields, options.reward, greedy=greedy))


def _sample(line: int, fields: Mapping[str, Any], chosen: str | None, *, greedy: bool) -> Recorded:
    if fields.keys() >= _SUMMARY:
        raise BadField(NO_TEXTS)
    if fields.get("error") is not None:
        raise BadField("the example ended in an error")
    metrics, logs = inner(fields, "metrics"), inner(fields, "logs")
    if chosen is not None and chosen not in metrics and chosen != "reward":
        raise BadField(f"no metric {chosen}")
    name = chosen or ("correct" if "correct" in metrics else "reward")
    reward = get_number(fields if name == "reward" else metrics, name)
    listed = fields.get("turns")
    turns = [turn for turn in listed if isinstance(turn, dict)] if isinstance(listed, list) else []
    contents: list[Any] = [turn.get("content") for turn in turns] or [None]
    prompt, answers = contents[0], contents[1:]
    if reward is not None:  # a null answer with a score counts as empty
        answers = ["" if answer is None else answer for answer in answers] or [""]
    if not isinstance(prompt, str) or not answers or not all(isinstance(answer, str) for answer in answers):
        raise BadField("no turns of prompt and answer")
    return Recorded(
        line=line,
        prompt=prompt,
        response=remove_end_token("\n".join(answers)),
        gold=get_optional_text(logs, "expected"),
        reward=reward,
        problem=get_optional_text(fields, "example_id") or get_optional_text(fields, "idx"),
        answer=get_optional_text(logs, "extracted"),
        greedy=greedy,
        n_tokens=_n_tokens(turns),
        finish_reason="length" if metrics.get("max_tokens_reached") or metrics.get("context_overflow") else None,
        task=get_optional_text(fields, "benchmark"),
    )


def _n_tokens(turns: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of tokens of all turns of the model; None if any is missing."""
    counts = [get_whole(turn, "token_count") for turn in turns if turn.get("role") == "assistant"]
    counted = [count for count in counts if count]
    return sum(counted) if counted and len(counted) == len(counts) and sum(counted) < 2**31 else None


def _metadata(path: Path) -> Mapping[str, Any]:
    """Return the metadata of the run that contains the benchmark's folder; empty without metadata."""
    try:
        document = parse_json((path.absolute().parent.parent / "metadata.json").read_bytes())
    except OSError:
        return {}
    metadata = document[0] if isinstance(document, tuple) else None
    return metadata if isinstance(metadata, dict) and "checkpoint_name" in metadata else {}


IMPORTER = Importer(
    name="tinker",
    title="tinker-cookbook, trajectories.jsonl",
    suffixes=(".jsonl",),
    recognises=recognises,
    place=place,
    read_samples=read_samples,
    settings=settings,
)
