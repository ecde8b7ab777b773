"""Every Eval Ever: responses in the shared schema 0.3.0, ``*_samples.jsonl``.

``oversharp export`` writes these files too. Each line is one response: ``input.raw`` is the prompt, ``input.reference``
the gold answer, ``output.raw`` the response, ``evaluation`` the score, ``sample_id`` the problem. The reward is
``score``, else ``is_correct``, or the field chosen by --reward. The schema has no field for a checkpoint's step. The
step is ``metadata.step``, which ``oversharp export`` writes, else the number at the end of the folder's name
(``grpo-step-40``), or --step. Without ``metadata.sample_index`` the responses to a problem are numbered in file order.
Several outputs with one score are a fault.

With ``multi_turn`` and ``agentic``, the messages from the model's first are a trajectory. The schema's arguments are
texts, also those of numbers. Its converter of inspect logs loses failures of tools and images.

That converter gives every repeat of a problem the mean score of the repeats. If all repeats of some problem have the
same score, which is neither 0 nor 1, and no problem of the file has repeats with different scores, the scores are
averages. They are not used as grades, and a note says so: a verifier grades the responses.

Source: https://github.com/evaleval/every_eval_ever, instance-level schema 0.3.0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded, has_fields
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    get_finish_reason,
    get_optional_text,
    get_response,
    get_reward,
    get_text,
    get_whole,
    inner,
    parse_step_name,
)
from oversharp.diagnostics.ingest.formats.rows import read_one_each, typed_records
from oversharp.diagnostics.ingest.formats.turns import as_trajectory, read_messages
from oversharp.diagnostics.trajectories.messages import split_prompt
from oversharp.diagnostics.trajectories.record import model_text

_SEVERAL_TURNS = ("multi_turn", "agentic")
_SCORES = ("score", "is_correct")


def place(path: Path) -> FilePlace:
    """Return run and step of a folder named ``RUN-step-N``, as ``oversharp export`` writes it."""
    run, _, number = path.absolute().parent.name.rpartition("-step-")
    step = parse_step_name(number, "")
    return FilePlace(run=run or None, step=step) if step is not None else FilePlace()


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per line. Scores that are averages over repeats are left out."""
    is_average = options.reward in (None, *_SCORES) and has_averages(path)
    return read_one_each(path, lambda line, fields: _sample(line, fields, options.reward, is_average=is_average))


class _LineScore(Struct):
    score: float | bool | None = None


class _ScoredLine(Struct):
    sample_id: str
    evaluation: _LineScore
    evaluation_result_id: str | None = None


def has_averages(path: Path) -> bool:
    """Return whether the scores of a file are averages over the repeats of each problem."""
    scores: defaultdict[tuple[str, str | None], list[float]] = defaultdict(list)
    for record in typed_records(path, _ScoredLine):
        if (
            not isinstance(record, Fault)
            and isinstance(line := record[1], _ScoredLine)
            and line.evaluation.score is not None
        ):
            scores[line.sample_id, line.evaluation_result_id].append(float(line.evaluation.score))
    repeated = [repeats for repeats in scores.values() if len(repeats) > 1]
    is_equal = all(len(set(repeats)) == 1 for repeats in repeated)
    return is_equal and any(repeats[0] not in (0.0, 1.0) for repeats in repeated)


def note(path: Path) -> str | None:
    """Return a note on scores that are not used; None if there are none."""
    if not has_averages(path):
        return None
    return "all repeats of a problem have one score, an average over them: not used as grade, a verifier grades instead"


def _sample(line: int, fields: Mapping[str, Any], chosen: str | None, *, is_average: bool) -> Recorded:
    request, metadata, judged = (inner(fields, "input"), inner(fields, "metadata"), inner(fields, "evaluation"))
    reward = None if is_average else get_reward(judged, chosen, "score")
    if reward is None and not is_average:
        reward = get_reward(judged, None, "is_correct")
    turns = None
    if fields.get("interaction_type") in _SEVERAL_TURNS:
        _, messages = split_prompt(read_messages(fields.get("messages"), "messages"))
        turns, response = as_trajectory(messages), model_text(messages)
        if not messages and reward is None:
            raise BadField("no message of the model")
    else:
        outputs = inner(fields, "output").get("raw") or [None]
        if not isinstance(outputs, list):
            raise BadField("output.raw is not a list of texts")
        if len(outputs) != 1:
            raise BadField("several outputs with one score")
        response = get_response({"output": outputs[0]}, "output", reward)
    return Recorded(
        line=line,
        prompt=get_text(request, "raw"),
        response=response,
        turns=turns,
        gold=get_optional_text(request, "reference"),
        reward=reward,
        step=get_whole(metadata, "step"),
        problem=get_optional_text(fields, "sample_id"),
        index=get_whole(metadata, "sample_index"),
        greedy=metadata.get("greedy") == "true",
        n_tokens=get_whole(metadata, "n_tokens"),
        finish_reason=get_finish_reason(metadata, "finish_reason"),
        task=get_optional_text(fields, "evaluation_name"),
    )


IMPORTER = Importer(
    name="every_eval_ever",
    title="Every Eval Ever, responses",
    suffixes=(".jsonl",),
    recognises=has_fields("schema_version", "evaluation_id", "sample_id", "input", "evaluation"),
    place=place,
    read_samples=read_samples,
    note=note,
    untold="arguments are texts, and failures of tools and images may be missing",
)
