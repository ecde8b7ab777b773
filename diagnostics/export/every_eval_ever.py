"""Export all samples in the shared schema Every Eval Ever 0.3.0, with one evaluation per checkpoint.

The schema (https://github.com/evaleval/every_eval_ever) has two files per evaluation, with the same UUID: its results,
and a line per response. Both depend only on the store, so the same store gives the same bytes. Values without a field
in the schema, such as the checkpoint's step, are texts in ``metadata``. Samples of a problem have the same
``sample_id`` and differ in ``metadata.sample_index``. A trajectory is a record with messages. The schema has no place
for arguments that are no JSON object, nor for tokens, masks and failures of single turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

import pandas as pd

from oversharp.diagnostics.export.atif import call_ids, parse_strict
from oversharp.diagnostics.export.samples import SampleFile, read_rows
from oversharp.diagnostics.records.names import slug, slugs
from oversharp.diagnostics.records.types import NO_ANSWER
from oversharp.diagnostics.store import Store

SCHEMA_VERSION = "0.3.0"
#: Model author. The schema's folder names need one, and the store does not have it.
DEVELOPER = "local"
#: Measures that an evaluation reports. Each response belongs to one of them: sampled or greedy.
_OF_SAMPLES, _OF_GREEDY = "pass_at_k", "greedy_accuracy"

_EVALUATIONS = """
SELECT
    c.step, c.checkpoint, c.checkpoint_id, c.is_base, a.audit_id, a.n, a.n_base, a.first_round, a.enough,
    epoch(a.updated_at)::BIGINT AS made_at_s,
    coalesce(a.provenance ->> '$.versions.oversharp', 'unknown') AS oversharp_version,
    a.provenance ->> '$.command' AS command,
    v.label AS verdict, v.sentence AS verdict_sentence,
    s.* EXCLUDE (settings_id)
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN settings AS s USING (settings_id)
LEFT JOIN verdicts AS v USING (series)
WHERE a.series = $series
ORDER BY c.step
"""
_TASKS = """
SELECT p.task, count(*) AS n_problems
FROM current_audits AS a
JOIN audit_problems AS ap USING (audit_id)
JOIN problems AS p USING (problem_id)
WHERE a.series = $series
GROUP BY p.task
ORDER BY p.task
"""
_RESULTS = """
SELECT step, measure, k, value, low, high, n, unit
FROM findings
WHERE series = $series AND scope = 'all' AND measure IN ($samples, $greedy) AND value IS NOT NULL
ORDER BY step, measure DESC, k
"""


def write_evaluations(
    store: Store, planned: Mapping[str, Sequence[SampleFile]], folder: Path, advance: Callable[[int], None]
) -> int:
    """Write two files per checkpoint into ``folder``; return the number of records.

    ``planned`` has the ``parts`` of every series. ``advance`` is called with the number of samples read.
    """
    names = slugs(planned)
    n_written = 0
    for series, own in planned.items():
        tasks = store.frame(_TASKS, series=series)
        results = store.frame(_RESULTS, series=series, samples=_OF_SAMPLES, greedy=_OF_GREEDY)
        audited = {row["step"]: row for row in _rows(store.frame(_EVALUATIONS, series=series))}
        for step, same_step in groupby(own, key=lambda part: part.step):
            about = audited[step]
            model_id = f"{DEVELOPER}/{names[series]}-step-{step}"
            collection = slug(str(tasks["task"].iloc[0])) if len(tasks) == 1 else "several-tasks"
            place = folder / "data" / collection / model_id
            place.mkdir(parents=True)
            name = _uuid(about["audit_id"], about["checkpoint_id"], series)
            aggregate = _aggregate(series, about, tasks, _rows(results[results["step"] == step]), model_id, collection)
            lines = place / f"{name}_samples.jsonl"
            n_rows, checksum = _write_lines(lines, _records(store, series, list(same_step), aggregate, about, advance))
            aggregate["detailed_evaluation_results"] = {
                "format": "jsonl",
                "file_path": lines.relative_to(folder).as_posix(),
                "hash_algorithm": "sha256",
                "checksum": checksum,
                "total_rows": n_rows,
            }
            (place / f"{name}.json").write_text(_json(aggregate, indent=2) + "\n", encoding="utf-8")
            n_written += n_rows
    return n_written


def _aggregate(
    series: str,
    about: Mapping[str, Any],
    tasks: pd.DataFrame,
    results: Sequence[Mapping[str, Any]],
    model_id: str,
    collection: str,
) -> dict[str, Any]:
    """Return the results of one checkpoint, without the reference to the file of responses."""
    details = {
        "series": series,
        "checkpoint": about["checkpoint"],
        "step": about["step"],
        "is_base": about["is_base"],
        "checkpoint_id": about["checkpoint_id"],
    }
    verdict = {"verdict_on_series": about["verdict"], "verdict_sentence": about["verdict_sentence"]}
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{collection}/{model_id}/{about['made_at_s']}",
        "evaluation_timestamp": str(about["made_at_s"]),
        "retrieved_timestamp": str(about["made_at_s"]),
        "source_metadata": {
            "source_name": "oversharp audit",
            "source_type": "evaluation_run",
            "source_organization_name": DEVELOPER,
            "evaluator_relationship": "other",
            "additional_details": _texts(verdict),
        },
        "eval_library": {"name": "oversharp", "version": about["oversharp_version"]},
        "model_info": {
            "name": f"{series}, {about['checkpoint']}",
            "id": model_id,
            "additional_details": {
                "deployment_type": "self_deployed",
                "model_availability": "unknown",
                **_texts(details),
            },
        },
        "evaluation_results": [_result(result, about, tasks) for result in results],
    }


def _result(finding: Mapping[str, Any], about: Mapping[str, Any], tasks: pd.DataFrame) -> dict[str, Any]:
    """Return one finding as a result of the evaluation."""
    of_samples = finding["measure"] == _OF_SAMPLES
    k = {"k": finding["k"]} if of_samples else {}
    score: dict[str, Any] = {"score": finding["value"]}
    if finding["low"] is not None and finding["high"] is not None:
        bounds = {"lower": finding["low"], "upper": finding["high"], "confidence_level": 0.95}
        score["uncertainty"] = {"confidence_interval": bounds}
    sampling = {
        "temperature": about["temperature"] if of_samples else 0.0,
        "top_p": about["top_p"],
        "top_k": about["top_k"],
        "max_tokens": about["max_tokens"],
        "prompt_template": about["prompt_template"],
        "execution_command": about["command"],
    }
    n = about["n_base"] if about["is_base"] else about["n"]
    samples: dict[str, Any] = {"samples_per_problem": n if of_samples else 1}
    if of_samples and about["enough"] is not None:  # pass@k is not that of the share of correct samples
        samples = {
            "most_samples_per_problem": n,
            "samples_of_first_round": about["first_round"],
            "correct_samples_that_stop": about["enough"],
        }
    further = {
        **samples,
        **{name: about[name] for name in ("sampler", "seed", "dtype", "chat", "system_prompt")},
    }
    return {
        "evaluation_result_id": _result_id(finding["measure"], finding["k"]),
        "evaluation_name": ", ".join(str(task) for task in tasks["task"]),
        "source_data": {
            "dataset_name": ", ".join(str(task) for task in tasks["task"]),
            "source_type": "other",
            "additional_details": {"n_problems": str(tasks["n_problems"].sum())},
        },
        "metric_config": {
            "evaluation_description": f"{finding['measure']} of oversharp, over all problems",
            "metric_id": finding["measure"],
            "metric_name": f"pass@{finding['k']}" if of_samples else "greedy accuracy",
            "metric_kind": "pass_rate" if of_samples else "accuracy",
            "metric_unit": "proportion",
            "metric_parameters": k,
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0,
            "max_score": 1,
        },
        "score_details": score,
        "generation_config": {
            "generation_args": {name: value for name, value in sampling.items() if value is not None},
            "additional_details": _texts(further),
        },
    }


def _records(
    store: Store,
    series: str,
    parts: Sequence[SampleFile],
    aggregate: Mapping[str, Any],
    about: Mapping[str, Any],
    advance: Callable[[int], None],
) -> Iterator[dict[str, Any]]:
    """Yield a record per response, in the order of the problem set."""
    shared = {"schema_version": SCHEMA_VERSION, "evaluation_id": aggregate["evaluation_id"]}
    shared["model_id"] = aggregate["model_info"]["id"]
    results = {result["evaluation_result_id"] for result in aggregate["evaluation_results"]}
    for sample in read_rows(store, series, parts, advance):
        yield {**shared, **record(sample, results, about["checkpoint_id"])}


def record(sample: Mapping[str, Any], results: Collection[str], checkpoint_id: str) -> dict[str, Any]:
    """Return the fields of one response that differ between records.

    ``sample`` is a row of ``samples.SCHEMA``. ``results`` are the ids of the evaluation's results, of which the
    response belongs to one.
    """
    result_id = _result_id(_OF_GREEDY, None) if sample["greedy"] else _result_id(_OF_SAMPLES, 1)
    answer = {
        "turn_idx": 0,
        "source": "output.raw",
        "extracted_value": sample["answer"],
        "extraction_method": sample["verifier"],
        "is_terminal": True,
    }
    turns = sample.get("turns")
    messages = [] if turns is None else _messages(sample["prompt"], turns)
    n_calls = sum(len(message["tool_calls"]) for message in messages)
    if messages:
        answer |= {"turn_idx": len(messages) - 1, "source": f"messages[{len(messages) - 1}].content"}
    identity = ("series", "checkpoint", "step", "is_base", "task", "problem_id", "sample_index", "greedy", "mode")
    measured = ("n_tokens", "finish_reason", "logp_sum_raw", "state", "reason")
    return {
        "evaluation_name": sample["task"],
        **({"evaluation_result_id": result_id} if result_id in results else {}),
        "sample_id": sample["source_id"] or sample["problem_id"],
        "sample_hash": sha256(f"{sample['prompt']}{sample['gold']}".encode()).hexdigest(),
        "interaction_type": "agentic" if n_calls else "multi_turn" if messages else "single_turn",
        "input": {"raw": sample["prompt"], "reference": [sample["gold"]]},
        **({"output": None, "messages": messages} if messages else {"output": {"raw": [sample["text"]]}}),
        "answer_attribution": [] if sample["answer"] == NO_ANSWER else [answer],
        "evaluation": {
            "score": sample["reward"],
            "is_correct": sample["correct"],
            "num_turns": len(messages) or 1,
            **({"tool_calls_count": n_calls} if messages else {}),
        },
        **({"error": f"{sample['state']}: {sample['reason']}"} if sample["state"] in ("timeout", "error") else {}),
        "metadata": {
            **_texts({name: sample[name] for name in (*identity, *measured)}),
            "checkpoint_id": checkpoint_id,
        },
    }


def _messages(prompt: str, turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return prompt and turns as messages. The schema wants texts as arguments, so other values become JSON."""
    ids = [call_ids(turn["calls"], place) for place, turn in enumerate(turns)]
    answered: dict[int, list[str]] = {}
    for turn, own in zip(turns, ids, strict=True):
        for call, id in zip(turn["calls"], own, strict=True):
            if call["result"] is not None:
                answered.setdefault(call["result"], []).append(id)
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": prompt, "reasoning_trace": None, "tool_calls": [], "tool_call_id": None}
    ]
    for place, (turn, own) in enumerate(zip(turns, ids, strict=True)):
        calls = [
            {"id": id, "name": call["name"], "arguments": _text_arguments(call["arguments"])}
            for call, id in zip(turn["calls"], own, strict=True)
        ]
        messages.append({
            "role": turn["role"],
            "content": turn["text"],
            "reasoning_trace": turn["reasoning"],
            "tool_calls": calls,
            "tool_call_id": answered.get(place),
        })  # fmt: skip
    return [{"turn_idx": number, **message} for number, message in enumerate(messages)]


def _text_arguments(arguments: str) -> dict[str, str] | None:
    """Return arguments with texts as values; None if they are no JSON object."""
    parsed = parse_strict(arguments)
    if not isinstance(parsed, dict):
        return None
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in parsed.items()
    }


def _result_id(measure: str, k: int | None) -> str:
    return measure if k is None else f"{measure}:{k}"


def _write_lines(path: Path, records: Iterator[Mapping[str, Any]]) -> tuple[int, str]:
    """Write a line per record; return the number of records and the file's SHA-256."""
    digest, n_rows = sha256(), 0
    with path.open("wb") as file:
        for record in records:
            line = f"{_json(record)}\n".encode()
            digest.update(line)
            file.write(line)
            n_rows += 1
    return n_rows, digest.hexdigest()


def _uuid(*identity: str) -> UUID:
    """Return a version 4 UUID that depends only on ``parts``."""
    return UUID(bytes=sha256("\n".join(identity).encode()).digest()[:16], version=4)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that are known and not empty, as text.

    The schema requires text in free fields.
    """
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value is not None and value != ""
    }


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows with plain Python values; NULL becomes None."""
    integers = ("k", "n", "seed", "top_k", "max_tokens", "first_round", "enough")
    whole = {name: "Int64" for name in integers if name in frame}
    return [
        {name: None if pd.isna(value) else value for name, value in row.items()}
        for row in frame.astype(whole).astype(object).to_dict("records")
    ]


def _json(value: Mapping[str, Any], indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
