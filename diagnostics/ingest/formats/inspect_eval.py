"""inspect: ``.eval`` and ``.json`` logs. The package inspect is not needed.

Each epoch has one response to every problem. The reward is the score of the task's first scorer, or of the one chosen
by ``--reward``. The grades C, I, P and N are 1, 0, 0.5 and 0, as in inspect's metrics. Samples that ended in an error,
or were declared invalid, are skipped. Run and step are in the model's name, or in the model argument ``model_path``.

If the model wrote several messages or called tools, the messages after the prompt are a trajectory. The prompt is the
sample's ``input``, so it lacks messages that a solver put before it, such as a system message. The text of a failed
call is the error's. Images and other parts without text are named, in the prompt with a hash of their content. After a
compaction, ``messages`` lack earlier turns. The log has no tokens of the single turns, so these samples have no number
of tokens and no log-probability.

Log-probabilities are used under two conditions. They belong to the response's tokens (the provider ``hf`` records the
most probable tokens instead). And the response was sampled at temperature 1 from the full vocabulary.

Source: inspect-ai 0.3.285, ``EvalLog`` and ``EvalSample``, format 2, and its conversion of older formats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.archive import MOST_MIB, Archive, MemberTooLargeError
from oversharp.diagnostics.ingest.formats.contract import (
    Fault,
    FilePlace,
    Importer,
    ReadOptions,
    Recorded,
    ScoreTable,
    gather_scores,
)
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    get_number,
    get_sampling_settings,
    get_whole,
    inner,
    join_chat,
)
from oversharp.diagnostics.ingest.formats.opening import starts_as_json
from oversharp.diagnostics.ingest.formats.rows import parse_json, read_json_object
from oversharp.diagnostics.ingest.formats.turns import as_trajectory, read_messages
from oversharp.diagnostics.records.errors import ImportFileError
from oversharp.diagnostics.records.types import FinishReason, content_hash
from oversharp.diagnostics.series.folders import run_and_step
from oversharp.diagnostics.trajectories.record import Turns, model_text
from oversharp.diagnostics.verifiers.reading.golds import any_of

DAMAGED = "an unreadable sample (damaged?)"
TOO_LARGE = f"a sample that unpacks to more than {MOST_MIB} MiB"
#: Newest supported log format.
NEWEST_FORMAT = 2

#: Regular expression of the first bytes of a JSON log.
_JSON_LOG = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:\s*"[a-z]+"\s*,\s*"eval"\s*:\s*\{')
_HEADER, _START, _SUMMARIES = "header.json", "_journal/start.json", "summaries.json"
_JOURNAL, _SAMPLES = "_journal/summaries/", "samples/"
_ATTACHED = ("attachment://", "tc://")

_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
#: This provider counts the padding of a batch as tokens of the response.
_PADS = "hf/"
#: Fields of messages that are no part of a response.
_OF_LOG = frozenset({"model", "source"})
_FINISH: dict[str, FinishReason] = {"stop": "stop", "max_tokens": "length", "model_length": "length"}


def place(path: Path) -> FilePlace:
    """Return run and step from the header's model, and the task; nothing if the header is unreadable."""
    try:
        spec = inner(_header(path), "eval")
    except ImportFileError:
        return FilePlace()
    named, model, task = inner(spec, "model_args").get("model_path"), spec.get("model"), spec.get("task")
    model = model if isinstance(model, str) else ""
    run, step = run_and_step(named if isinstance(named, str) else model.partition("/")[2] or model)
    return FilePlace(run=run or None, step=step, task=task if isinstance(task, str) and task else None)


def settings(path: Path) -> dict[str, Any]:
    """Return the sampling settings of the evaluation; missing ones are those of the model."""
    try:
        config = _config(_header(path))
    except ImportFileError:
        return {}
    system = config.get("system_message")
    return {**get_sampling_settings(config), **({"system_prompt": system} if isinstance(system, str) else {})}


def samples_of(path: Path) -> tuple[str, bool] | None:
    """Return the id of the evaluation, which ``inspect score`` preserves, and whether the log has scores."""
    try:
        header = _header(path)
    except ImportFileError:
        return None
    spec = inner(header, "eval")
    names = [spec.get(name) for name in ("eval_id", "run_id", "task_id", "created")]
    scores = inner(header, "results").get("scores")
    return "/".join(map(str, names)), bool(scores)


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per problem and epoch, with its position in the log as ``line``.

    Raises ``ImportFileError`` for an unreadable log or a newer format.
    """
    header = _read_log_settings(_header(path), options)
    for line, sample in enumerate(_samples(path), start=1):
        if isinstance(sample, str):
            yield Fault(line, sample)
            continue
        try:
            yield _recorded(line, sample, header)
        except BadField as bad:
            yield Fault(line, str(bad))


def score_table(path: Path, options: ReadOptions) -> ScoreTable | None:
    """Return all scores by scorer; None with one scorer, or if ``options`` chooses a scorer."""
    header = _header(path)
    scorers, first = inner(header, "eval").get("scorers"), _read_log_settings(header, options).scorer
    if options.reward is not None or not isinstance(scorers, list) or len(scorers) < 2:
        return None

    def rows() -> Iterator[tuple[str, Mapping[str, float]]]:
        for sample in _samples(path):
            if isinstance(sample, str) or sample.get("error") is not None or sample.get("invalidation") is not None:
                continue
            scores = inner(sample, "scores")
            yield str(sample.get("id")), dict(_numbers(scores))

    return gather_scores(rows(), taken=f"the first scorer, {first}", flag="--reward SCORER")


def _numbers(scores: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the scorers whose score is a number, with the score."""
    for name in scores:
        try:
            score = _number(inner(scores, name).get("value"))
        except BadField:
            continue
        if score is not None:
            yield name, score


@dataclass(frozen=True, kw_only=True)
class _LogSettings:
    """Settings that apply to all samples of a log.

    If ``asked``, the user chose ``scorer``, and every sample needs its score.
    """

    scorer: str | None
    asked: bool
    greedy: bool
    full_vocabulary: bool
    pads: bool


def _read_log_settings(header: Mapping[str, Any], options: ReadOptions) -> _LogSettings:
    config, spec = _config(header), inner(header, "eval")
    model, scorers = spec.get("model"), spec.get("scorers")
    first = scorers[0].get("name") if isinstance(scorers, list) and scorers and isinstance(scorers[0], dict) else None
    return _LogSettings(
        scorer=options.reward or (first if isinstance(first, str) else None),
        asked=options.reward is not None,
        greedy=config.get("temperature") == 0,
        full_vocabulary=config.get("temperature") == 1
        and config.get("top_p", 1) == 1
        and config.get("top_k", 0) in (0, -1),
        pads=isinstance(model, str) and model.startswith(_PADS),
    )


# ---------------------------------------------------------------- the log


def _header(path: Path) -> Mapping[str, Any]:
    """Return the log without its samples.

    For an interrupted evaluation, return the start of its journal.
    """
    if starts_as_json(path, _JSON_LOG):
        header: Mapping[str, Any] = read_json_object(path)
    else:
        with Archive(path) as archive:
            document = parse_json(archive.content(_HEADER if _HEADER in archive.names else _START))
        header = document[0] if isinstance(document, tuple) and isinstance(document[0], dict) else {}
    if not isinstance(header.get("eval"), dict):
        raise ImportFileError(f"{path}: the header of the log is unreadable, possibly truncated; copy the file again")
    version = header.get("version")
    if isinstance(version, int) and version > NEWEST_FORMAT:
        raise ImportFileError(
            f"{path}: log format {version} is not supported, only up to {NEWEST_FORMAT}; update oversharp"
        )
    return header


def _samples(path: Path) -> Iterator[Mapping[str, Any] | str]:
    """Yield every sample, or a fault for each unreadable sample."""
    if starts_as_json(path, _JSON_LOG):
        listed = read_json_object(path).get("samples")
        for sample in listed if isinstance(listed, list) else ():
            yield sample if isinstance(sample, dict) else DAMAGED
        return
    with Archive(path) as archive:
        for name in _sample_names(archive):
            try:
                document = parse_json(archive.content(name))
            except MemberTooLargeError:
                yield TOO_LARGE
            except ImportFileError:  # the other samples may be readable
                yield DAMAGED
            else:
                yield document[0] if isinstance(document, tuple) and isinstance(document[0], dict) else DAMAGED


def _sample_names(archive: Archive) -> list[str]:
    """Return the archive members of all samples: those listed in the summaries, and any others."""
    written = [name for name in archive.names if name.startswith(_SAMPLES) and name.endswith(".json")]
    journal = [name for name in archive.names if name.startswith(_JOURNAL)]
    lists = [_SUMMARIES] if _SUMMARIES in archive.names else journal
    listed_names: list[str] = []
    for name in lists:
        document = parse_json(archive.content(name))
        listed = document[0] if isinstance(document, tuple) and isinstance(document[0], list) else []
        keys = [(summary.get("id"), summary.get("epoch")) for summary in listed if isinstance(summary, dict)]
        listed_names += [f"{_SAMPLES}{problem}_epoch_{epoch}.json" for problem, epoch in keys]
    return list(dict.fromkeys(listed_names + written))


def _config(header: Mapping[str, Any]) -> dict[str, Any]:
    of_model, of_plan = (inner(inner(header, "eval"), "model_generate_config"), inner(inner(header, "plan"), "config"))
    return {name: value for name, value in (*of_model.items(), *of_plan.items()) if value is not None}


# ---------------------------------------------------------------- a sample


def _recorded(line: int, sample: Mapping[str, Any], settings_of_log: _LogSettings) -> Recorded:
    if sample.get("error") is not None:
        raise BadField("the sample ended in an error")
    if sample.get("invalidation") is not None:
        raise BadField("the sample was declared invalid")
    epoch, problem = get_whole(sample, "epoch"), sample.get("id")
    if not epoch or not isinstance(problem, str | int):
        raise BadField(DAMAGED)
    attached = inner(sample, "attachments") or inner(inner(sample, "transcript"), "content")
    output = _with_attached(inner(sample, "output"), attached)
    scored = _score_of(sample, settings_of_log)
    reward = _number(scored.get("value"))
    choices = output.get("choices") or [{}] * (reward is not None)
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise BadField("no output")
    choice, completion = choices[0], output.get("completion")
    turns = _turns(sample, attached)
    if turns is not None:
        response = model_text(turns)
    elif isinstance(completion, str) and completion:
        response = completion
    else:
        message = inner(choice, "message")
        is_missing = reward is not None and message.get("content") is None
        response = "" if is_missing else _message_text(message)
    answer = scored.get("answer")
    logps = _logps(choice, response) if turns is None else None
    is_counted = turns is None and not settings_of_log.pads
    counted = get_whole(inner(output, "usage"), "output_tokens") or None if is_counted else None
    stopped = choice.get("stop_reason") if turns is None or not inner(sample, "limit") else "max_tokens"
    return Recorded(
        line=line,
        prompt=_prompt(_with_attached(sample.get("input"), attached)),
        response=response,
        turns=turns,
        gold=_gold(sample.get("target")),
        reward=reward,
        problem=str(problem),
        index=epoch - 1,
        answer=answer if isinstance(answer, str) and answer not in (response, "") else None,
        greedy=settings_of_log.greedy,
        n_tokens=len(logps) if logps else counted,
        finish_reason=_FINISH.get(stopped) if isinstance(stopped, str) else None,
        logp_sum=math.fsum(logps) if logps and settings_of_log.full_vocabulary else None,
    )


def _with_attached(value: Any, attached: Mapping[str, Any]) -> Any:
    """Replace references to attachments in a value by the attached texts."""
    if isinstance(value, dict):
        return {name: _with_attached(part, attached) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_attached(part, attached) for part in value]
    if isinstance(value, str) and value.startswith(_ATTACHED):
        text = attached.get(value.partition("://")[2])
        return text if isinstance(text, str) else value
    return value


def _prompt(messages: object) -> str:
    if isinstance(messages, str):
        return messages
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise BadField("no input")
    return join_chat(
        [{**message, "content": _with_named_parts(message.get("content"))} for message in messages], "input"
    )


def _with_named_parts(content: Any) -> Any:
    """Replace parts of a prompt that are no text by their type and a hash, which distinguishes problems."""
    if not isinstance(content, list):
        return content
    return [
        {"text": f"[{part.get('type')} {content_hash(str(part))[:8]}]"}
        if isinstance(part, dict) and not isinstance(part.get("text"), str)
        else part
        for part in content
    ] or ""


def _turns(sample: Mapping[str, Any], attached: Mapping[str, Any]) -> Turns | None:
    """Return the turns after the prompt; None if they are one plain text, or the log lacks them."""
    messages, prompt = sample.get("messages"), sample.get("input")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return None
    of_prompt = (
        {message.get("id") for message in prompt if isinstance(message, dict)} if isinstance(prompt, list) else ()
    )
    first = next(
        (
            place
            for place, message in enumerate(messages)
            if message.get("role") == "assistant"
            and message.get("source") != "input"
            and (message.get("id") is None or message["id"] not in of_prompt)
        ),
        len(messages),
    )
    # the model's name would distinguish equal responses of two checkpoints
    kept = [{name: value for name, value in message.items() if name not in _OF_LOG} for message in messages[first:]]
    return as_trajectory(read_messages(_with_attached(kept, attached), "messages"))


def _message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message: the joined texts of its parts.

    Raises ``BadField`` for a message without text.
    """
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = "\n".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        raise BadField("a message without text")
    return content


def _gold(target: object) -> str | None:
    """Return the gold answer; with several correct answers, a gold that accepts any of them."""
    golds = [
        answer for answer in (target if isinstance(target, list) else [target]) if isinstance(answer, str) and answer
    ]
    return any_of(golds) if golds else None


def _score_of(sample: Mapping[str, Any], settings_of_log: _LogSettings) -> Mapping[str, Any]:
    """Return the score used as reward; empty without a score.

    Old logs have a single ``score`` without a name.
    """
    only = inner(sample, "score")
    scores = {settings_of_log.scorer or "": only} if only else inner(sample, "scores")
    if settings_of_log.asked and settings_of_log.scorer not in scores:
        raise BadField(f"no score of {settings_of_log.scorer}")
    return inner(scores, settings_of_log.scorer or next(iter(scores), ""))


def _number(value: object) -> float | None:
    """Return a score as a number; None for NaN, with which inspect marks an ungraded sample."""
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, str):
        number = _LETTERS.get(value, _WORDS.get(value.lower()))
        if number is not None:
            return number
    if isinstance(value, list | dict):
        raise BadField("its score has several parts")
    return get_number({"its score": value}, "its score")


def _logps(choice: Mapping[str, Any], response: str) -> list[float] | None:
    """Return the response's token log-probabilities in nats; None if they belong to other tokens."""
    tokens = inner(choice, "logprobs").get("content")
    if not isinstance(tokens, list) or not tokens:
        return None
    try:
        parts = [_token_bytes(token) for token in tokens]
        logps = [float(token["logprob"]) for token in tokens]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):  # some providers write characters as bytes
        return None
    joined, text = b"".join(parts), response.encode("utf-8", "replace")
    return logps if text and joined in (text, text + parts[-1]) and math.isfinite(sum(logps)) else None


def _token_bytes(token: Mapping[str, Any]) -> bytes:
    spelt: Sequence[int] | None = token.get("bytes")
    return bytes(spelt) if isinstance(spelt, list) else token["token"].encode("utf-8", "replace")


IMPORTER = Importer(
    name="inspect",
    title="inspect, .eval and .json logs",
    suffixes=(".eval",),
    is_also=lambda path: starts_as_json(path, _JSON_LOG),
    recognises=lambda path, record: path.suffix.lower() == ".eval",
    place=place,
    read_samples=read_samples,
    settings=settings,
    samples_of=samples_of,
    score_table=score_table,
    untold="tokens and log-probabilities of single turns are missing, and turns before a compaction",
)
