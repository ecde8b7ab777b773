"""inspect: ``.eval`` logs, read by inspect's own reader.

The package ``inspect-ai`` has to be installed: its archives are compressed in a way that Python 3.11 cannot read, and
their fields change between versions. An epoch is one response to every problem. The score is that of the task's first
scorer, or of the one that ``--reward`` names; C, I, P and N count 1, 0, 0.5 and 0 as in inspect's own metrics. Samples
that ended in an error, or were declared invalid, are left out. Run and step are in the model's name, or in the model
argument ``model_path``. Log-probabilities count where they are those of the response's own tokens (inspect's provider
``hf`` notes the likeliest token at every place instead) and were drawn at temperature 1 from the full vocabulary.

Source: inspect-ai 0.3.285, ``EvalLog`` and ``EvalSample``.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded
from diagnostics.ingest.formats.fields import BadField, chat_text, numeric, sampling_settings
from diagnostics.records.errors import ImportFileError, first_line
from diagnostics.records.types import FinishReason
from diagnostics.series.folders import run_and_step

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ChatCompletionChoice, ChatMessage
    from inspect_ai.scorer import Score

INSTALL = "pip install 'inspect-ai>=0.3.285'"
#: Samples that lie in memory at once.
SAMPLES_PER_READ = 64
#: What may be large in a sample and is not read.
_NOT_READ = frozenset({"messages", "events", "store", "timelines"})

_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
#: A provider that counts the padding of a batch with the tokens of a response.
_PADS = "hf/"
_FINISH: dict[str, FinishReason] = {"stop": "stop", "max_tokens": "length", "model_length": "length"}


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """By the suffix, which is nobody else's."""
    return True


def place(path: Path) -> FilePlace:
    """Run and step of the model that the header names, and the task; nothing where the header cannot be read."""
    try:
        header = _header(path)
    except ImportFileError:
        return FilePlace()
    named = header.eval.model_args.get("model_path")
    model = named if isinstance(named, str) else header.eval.model.partition("/")[2] or header.eval.model
    run, step = run_and_step(model)
    return FilePlace(run=run or None, step=step, task=header.eval.task)


def settings(path: Path) -> dict[str, Any]:
    """Sampling settings of the header: what was asked for in this evaluation, else what the model was made with."""
    try:
        config = _config(_header(path))
    except ImportFileError:
        return {}
    system = config.get("system_message")
    return {**sampling_settings(config), **({"system_prompt": system} if isinstance(system, str) else {})}


def read(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """One sample per problem and epoch; ``line`` is its place in the log.

    Raises ``ImportFileError`` if inspect-ai is not there, or cannot read the log.
    """
    told = _told(_header(path), options)
    for line, sample in enumerate(_samples(path), start=1):
        if isinstance(sample, str):
            yield Fault(line, sample)
            continue
        try:
            yield _recorded(line, sample, told)
        except BadField as bad:
            yield Fault(line, str(bad))


@dataclass(frozen=True, kw_only=True)
class _Told:
    """What the header says of all samples. ``scorer`` counts, and must be there if it was ``asked`` for."""

    scorer: str | None
    asked: bool
    greedy: bool
    full_vocabulary: bool
    pads: bool


def _told(header: EvalLog, options: ReadOptions) -> _Told:
    config = _config(header)
    first = header.eval.scorers[0].name if header.eval.scorers else None
    return _Told(
        scorer=options.reward or first,
        asked=options.reward is not None,
        greedy=config.get("temperature") == 0,
        full_vocabulary=config.get("temperature") == 1
        and config.get("top_p", 1) == 1
        and config.get("top_k", 0) in (0, -1),
        pads=header.eval.model.startswith(_PADS),
    )


# ---------------------------------------------------------------- the archive


def _header(path: Path) -> EvalLog:
    log = _reader(path)
    try:
        return log.read_eval_log(path.as_posix(), header_only=True)
    except _unreadable() as error:
        raise _broken(path, error) from error


def _samples(path: Path) -> Iterator[EvalSample | str]:
    """Every sample, a few at a time, or why it cannot be read. Raises ``ImportFileError`` if their list cannot be."""
    log, unreadable = _reader(path), _unreadable()
    try:
        summaries = log.read_eval_log_sample_summaries(path.as_posix())
    except unreadable as error:
        raise _broken(path, error) from error
    keys = iter(dict.fromkeys((summary.id, summary.epoch) for summary in summaries))
    while some := list(islice(keys, SAMPLES_PER_READ)):
        try:
            yield from _some(log, path, some)
        except unreadable:  # of one of them: the others are good
            for key in some:
                try:
                    [sample] = _some(log, path, [key])
                except unreadable:
                    yield "a sample that inspect cannot read (damaged?)"
                else:
                    yield sample


def _some(log: Any, path: Path, keys: Sequence[tuple[str | int, int]]) -> list[EvalSample]:
    samples: list[EvalSample] = log.read_eval_log_samples_by_id(
        path.as_posix(), keys, resolve_attachments="core", exclude_fields=set(_NOT_READ), concurrency=1
    )
    return samples


def _reader(path: Path) -> Any:
    try:
        from inspect_ai import log

        log.read_eval_log_samples_by_id  # noqa: B018 - older versions lack it
    except (ImportError, AttributeError):
        raise ImportFileError(f"{path}: reading it needs inspect-ai: {INSTALL}") from None
    return log


def _unreadable() -> tuple[type[Exception], ...]:
    """What inspect's reader and its parts raise for a broken archive, and for fields that are none of its own."""
    from ijson import JSONError
    from zstandard import ZstdError

    of_fields = (ValueError, LookupError, TypeError, AttributeError, RuntimeError)
    return (OSError, EOFError, zipfile.BadZipFile, struct.error, JSONError, ZstdError, *of_fields)


def _broken(path: Path, error: Exception) -> ImportFileError:
    first = first_line(error)
    return ImportFileError(f"{path}: inspect cannot read it ({first}); cut short? copy it again")


def _config(header: EvalLog) -> dict[str, Any]:
    made_with = header.eval.model_generate_config.model_dump(exclude_none=True)
    return {**made_with, **header.plan.config.model_dump(exclude_none=True)}


# ---------------------------------------------------------------- a sample


def _recorded(line: int, sample: EvalSample, told: _Told) -> Recorded:
    if sample.error is not None:
        raise BadField("the sample ended in an error")
    if sample.invalidation is not None:
        raise BadField("the sample was declared invalid")
    if not sample.output.choices:
        raise BadField("no output")
    choice = sample.output.choices[0]
    response = sample.output.completion
    scored = _score_of(sample.scores or {}, told)
    answer = scored.answer if scored is not None else None
    logps = _logps(choice, response)
    usage = sample.output.usage
    counted = None if usage is None or told.pads else usage.output_tokens or None
    return Recorded(
        line=line,
        prompt=_prompt(sample.input),
        response=response,
        gold=_gold(sample.target),
        reward=None if scored is None else _number(scored.value),
        problem=str(sample.id),
        index=sample.epoch - 1,
        answer=None if answer in (response, "") else answer,
        greedy=told.greedy,
        n_tokens=len(logps) if logps else counted,
        finish_reason=_FINISH.get(choice.stop_reason),
        logp_sum=sum(logps) if logps and told.full_vocabulary else None,
    )


def _prompt(given: str | list[ChatMessage]) -> str:
    if isinstance(given, str):
        return given
    if not given:
        raise BadField("no input")
    if any(
        part.type != "text" for message in given if not isinstance(message.content, str) for part in message.content
    ):
        raise BadField("its input holds more than text")
    return chat_text([{"role": message.role, "content": message.text} for message in given], "input")


def _gold(target: str | list[str]) -> str | None:
    """The one answer; none where several would be right, since no verifier takes several."""
    if isinstance(target, str):
        return target or None
    return target[0] or None if len(target) == 1 else None


def _score_of(scores: Mapping[str, Score], told: _Told) -> Score | None:
    if told.asked and told.scorer not in scores:
        raise BadField(f"no score of {told.scorer}")
    return scores.get(told.scorer or next(iter(scores), ""))


def _number(value: object) -> float | None:
    """A score as a number; NaN is inspect's mark of a sample that its scorer left ungraded."""
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, str):
        known = _LETTERS.get(value, _WORDS.get(value.lower()))
        if known is not None:
            return known
    if isinstance(value, list | dict):
        raise BadField("its score has several parts")
    return numeric({"its score": value}, "its score")


def _logps(choice: ChatCompletionChoice, response: str) -> list[float] | None:
    """Nats by token, if these are the tokens of the response, the end token with them or not."""
    tokens = choice.logprobs.content if choice.logprobs is not None else []
    if not tokens:
        return None
    try:
        parts = [bytes(one.bytes) if one.bytes is not None else one.token.encode("utf-8", "replace") for one in tokens]
    except ValueError:  # what a provider calls bytes can be characters
        return None
    said, text = b"".join(parts), response.encode("utf-8", "replace")
    logps = [one.logprob for one in tokens]
    return logps if text and said in (text, text + parts[-1]) and math.isfinite(sum(logps)) else None


IMPORTER = Importer(
    name="inspect",
    title="inspect, .eval logs",
    suffixes=(".eval",),
    recognises=recognises,
    place=place,
    read=read,
    settings=settings,
)
