"""HELM: ``scenario_state.json`` of a run, with the scores in its ``per_instance_stats.json``.

A request state is a prompt with its completions. With one completion, the reward is a score: the first metric of
``_METRICS`` that the run has, or the metric chosen by --reward. With several completions, HELM scores only the first
and the best one. Then we grade all samples by the correct references, and compare our grade of the first completion
with HELM's score. The gold answer of multiple choice is the letter of the correct choice. Requests that score a
reference instead of generating text are faults. Perturbed copies of an instance, and trials with other few-shot
examples, are related problems: their cluster is the instance id. Run and step are in the model's name, else in the name
of a folder above: ``runs/step_40/gsm:model=…/``.

Source: stanford-crfm/helm 63754d0, ``ScenarioState``, ``RequestState`` and ``compute_reference_metrics``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded, ToolScore
from oversharp.diagnostics.ingest.formats.fields import (
    LARGEST_NUMBER,
    BadField,
    find_run_above,
    finite,
    get_sampling_settings,
    inner,
    join_chat,
    parse_finish,
)
from oversharp.diagnostics.ingest.formats.opening import starts_as_json
from oversharp.diagnostics.ingest.formats.rows import parse_json, read_json_object
from oversharp.diagnostics.records.errors import ImportFileError
from oversharp.diagnostics.series.folders import run_and_step
from oversharp.diagnostics.verifiers.exact import labelled_line
from oversharp.diagnostics.verifiers.reading.golds import any_of

_STATE = re.compile(rb'\s*\{\s*"adapter_spec"\s*:\s*\{')
_STATS = "per_instance_stats.json"
#: Metrics of single completions, by priority: first those that extract an answer, then those that compare whole texts.
_METRICS = (
    "final_number_exact_match",
    "math_equiv_chain_of_thought",
    "math_equiv",
    "chain_of_thought_correctness",
    "code_eval_acc",
    "quasi_prefix_exact_match",
    "quasi_exact_match",
    "exact_match",
)
#: Key of an instance's scores: instance id, perturbation, trial.
_Key = tuple[str, str, str]


def place(path: Path) -> FilePlace:
    """Return run and step from the model's name or a folder above. The task is the scenario."""
    try:
        model = inner(read_json_object(path), "adapter_spec").get("model")
    except ImportFileError:
        model = None
    run, step = run_and_step(model) if isinstance(model, str) else ("", None)
    if step is None:
        above, step = find_run_above(path.absolute().parent.parent)
        run = above or run
    name = path.absolute().parent.name
    return FilePlace(run=run or None, step=step, task=re.sub(r",?model=[^,]*", "", name).rstrip(":") or None)


def settings(path: Path) -> dict[str, float | int]:
    """Return the sampling settings of the run."""
    try:
        return get_sampling_settings(
            inner(read_json_object(path), "adapter_spec"), top_k="no such field", seed="no such field"
        )
    except ImportFileError:
        return {}


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per completion, with the number of its request as ``line``.

    Raises ``ImportFileError``.
    """
    state = read_json_object(path)
    greedy = inner(state, "adapter_spec").get("temperature") == 0
    scores = _scores(path.parent / _STATS)
    listed = state.get("request_states")
    requests = listed if isinstance(listed, list) else []
    related = any(map(_is_related, requests))
    for line, request in enumerate(requests, start=1):
        try:
            for sample in _samples(line, request, scores, options.reward, greedy=greedy):
                sample.cluster = sample.problem if related else None
                yield sample
        except BadField as bad:
            yield Fault(line, str(bad))


def _is_related(request: Any) -> bool:
    """Return whether a request is a perturbed copy, or a trial with other few-shot examples."""
    trial = request.get("train_trial_index") if isinstance(request, dict) else None
    return bool(trial or inner(inner(request, "instance"), "perturbation"))


def _samples(
    line: int, request: Any, scores: Mapping[_Key, Mapping[str, float]] | None, chosen: str | None, *, greedy: bool
) -> Iterator[Recorded]:
    instance, result = inner(request, "instance"), inner(request, "result")
    if not instance:
        raise BadField("no instance")
    if request.get("reference_index") is not None:
        raise BadField("generates no text; tasks that compare likelihoods cannot be imported")
    completions = result.get("completions")
    if not result.get("success") or not isinstance(completions, list) or not completions:
        raise BadField("the request failed")
    prompt, source_id = _prompt(inner(request, "request")), instance.get("id")
    gold, alone = _gold(instance, inner(request, "output_mapping")), len(completions) == 1
    metric, value = _score((scores or {}).get(_key(instance, request.get("train_trial_index")), {}), chosen)
    if chosen is not None and value is None:
        raise BadField(f"no score {chosen}")
    claim = None if alone or value is None or not 0 <= value <= 1 else ToolScore(metric, value, 1)
    for index, completion in enumerate(completions):
        tokens = completion.get("tokens") if isinstance(completion, dict) else None
        yield Recorded(
            line=line,
            prompt=prompt,
            response=_response(completion, scored=value is not None),
            gold=gold or None,
            reward=value if alone else None,
            problem=source_id if isinstance(source_id, str) else None,
            greedy=greedy and alone,
            n_tokens=len(tokens) if isinstance(tokens, list) and tokens else None,
            finish_reason=parse_finish(inner(completion, "finish_reason").get("reason")),
            claim=None if index else claim,
        )


def _prompt(request: Mapping[str, Any]) -> str:
    messages, prompt = request.get("messages"), request.get("prompt")
    if isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages):
        return join_chat(messages, "the prompt")
    if not isinstance(prompt, str) or not prompt:
        raise BadField("no prompt")
    return prompt


def _response(completion: Any, *, scored: bool) -> str:
    """Return the text, preceded by any separate reasoning; empty for a null text with a score."""
    text = completion.get("text") if isinstance(completion, dict) else None
    if text is None and scored:
        text = ""
    if not isinstance(text, str):
        raise BadField("a completion without text")
    thought = inner(completion, "thinking").get("text")
    return f"<think>{thought}</think>\n{text}" if isinstance(thought, str) and thought else text


def _gold(instance: Mapping[str, Any], letters: Mapping[str, Any]) -> str | None:
    """Return the correct references: the letter of a choice, the final answer of a worked solution."""
    references, golds = instance.get("references"), []
    for reference in references if isinstance(references, list) else ():
        tags, text = (
            (reference.get("tags"), inner(reference, "output").get("text"))
            if isinstance(reference, dict)
            else (None, None)
        )
        if isinstance(tags, list) and "correct" in tags and isinstance(text, str):
            letter = next((letter for letter, choice in letters.items() if choice == text), None)
            golds.append(letter or (labelled_line(text) or text).removesuffix("."))
    return any_of(golds) if golds else None


# ---------------------------------------------------------------- scores


def _scores(path: Path) -> dict[_Key, dict[str, float]] | None:
    """Return the scores of every instance by metric; None if the file is missing or unreadable."""
    try:
        document = parse_json(path.read_bytes())
    except OSError:
        return None
    if isinstance(document, str) or not isinstance(document[0], list):
        return None
    scores: dict[_Key, dict[str, float]] = {}
    for instance in document[0]:
        if not isinstance(instance, dict) or not isinstance(instance.get("stats"), list):
            continue
        key = _key_of(instance.get("instance_id"), instance.get("perturbation"), instance.get("train_trial_index"))
        for stat in instance["stats"]:
            name, mean = inner(stat, "name").get("name"), _mean(stat)
            if isinstance(name, str) and mean is not None:
                scores.setdefault(key, {})[name] = mean
    return scores


def _mean(stat: Any) -> float | None:
    if not isinstance(stat, dict):
        return None
    total, count = finite(stat.get("sum")), finite(stat.get("count"))
    mean = total / count if total is not None and count is not None and count >= 1 else math.inf
    return mean if abs(mean) <= LARGEST_NUMBER else None


def _key(instance: Mapping[str, Any], trial: object) -> _Key:
    return _key_of(instance.get("id"), instance.get("perturbation"), trial)


def _key_of(instance_id: object, perturbation: object, trial: object) -> _Key:
    changes = sorted(perturbation.items(), key=str) if isinstance(perturbation, dict) else ""
    return str(instance_id), str(changes), str(trial)


def _score(scores: Mapping[str, float], chosen: str | None) -> tuple[str, float | None]:
    name = chosen or next((metric for metric in _METRICS if metric in scores), "")
    return name, scores.get(name)


IMPORTER = Importer(
    name="helm",
    title="HELM, scenario_state.json",
    suffixes=(),
    is_also=lambda path: starts_as_json(path, _STATE),
    place=place,
    read_samples=read_samples,
    settings=settings,
)
