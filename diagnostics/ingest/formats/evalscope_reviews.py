"""evalscope: reviews, ``{work_dir}/reviews/{model}/{dataset}_{subset}.jsonl``.

Each row has the chat, the ``target`` and the ``sample_score``. The last message of the chat is the model's answer.
Samples with the same ``group_id`` are repeats of a problem. The reward is the main score, or the score chosen by
--reward. A sample with an unusable score has no reward. Files in ``predictions`` have no scores and are not read.
Sampling settings are read from ``configs/task_config.yaml``, if it exists. Run and step are in the model's name, else
in the name of a folder above ``reviews``.

Source: modelscope/evalscope fde259d, ``ReviewResult``, ``SampleScore`` and ``CacheManager``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    find_run_above,
    get_gold,
    get_number,
    get_optional_text,
    get_sampling_settings,
    inner,
    join_chat,
    split_folders,
)
from oversharp.diagnostics.ingest.formats.rows import read_one_each
from oversharp.diagnostics.series.folders import run_and_step

_KNOWN_BY = frozenset({"index", "target", "sample_score"})
#: Regular expressions: a block of numeric settings in a YAML file, and one line of the block.
_BLOCK = re.compile(r"^generation_config:[ ]*\n((?:[ ]+.*\n?)+)", re.MULTILINE)
_LINE = re.compile(r"^[ ]+(\w+):[ ]*([-+.\deE]+)[ ]*$", re.MULTILINE)


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a record has the fields of an evalscope review."""
    return record.keys() >= _KNOWN_BY and "score" in inner(record, "sample_score")


def place(path: Path) -> FilePlace:
    """Return run and step from the name of the model or of a folder above; the task is the file name."""
    work, model = _split(path)
    run, step = run_and_step(model)
    if step is None:
        above, step = find_run_above(work)
        run = above or run
    return FilePlace(run=run or None, step=step, task=path.stem)


def settings(path: Path) -> dict[str, float | int]:
    """Return the sampling settings in the run's configuration file."""
    try:
        config = (_split(path)[0] / "configs" / "task_config.yaml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    block = _BLOCK.search(config)
    return get_sampling_settings(dict(_LINE.findall(block[1]))) if block else {}


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per line."""
    greedy = settings(path).get("temperature") == 0
    return read_one_each(path, lambda line, fields: _sample(line, fields, options.reward, greedy=greedy))


def _sample(line: int, fields: Mapping[str, Any], chosen: str | None, *, greedy: bool) -> Recorded:
    sampled = inner(fields, "sample_score")
    score = inner(sampled, "score")
    values, main = inner(score, "value"), score.get("main_score_name")
    if chosen is not None and chosen not in values:
        raise BadField(f"no score {chosen}")
    name = chosen or (main if isinstance(main, str) and main in values else next(iter(values), None))
    reward = get_number(values, name)
    messages, prompt, response = _conversation(fields, score)
    if response is None and reward is None:
        raise BadField("no answer of the model among the messages, and no ``prediction``")
    answer = get_optional_text(score, "extracted_prediction")
    return Recorded(
        line=line,
        prompt=prompt,
        response=response or "",
        gold=get_gold(fields, "target"),
        reward=reward,
        problem=get_optional_text(sampled, "group_id") or get_optional_text(fields, "index"),
        answer=None if answer == response else answer,
        greedy=greedy,
        n_tokens=_n_tokens(messages),
    )


def _conversation(
    fields: Mapping[str, Any], score: Mapping[str, Any]
) -> tuple[list[Mapping[str, Any]], str, str | None]:
    """Return the messages, the prompt, and the response; the response is None if it is null or missing."""
    messages, asked, prediction = fields.get("messages"), fields.get("input"), score.get("prediction")
    predicted = prediction if isinstance(prediction, str) else None
    chat = _objects(messages)
    if not chat and isinstance(asked, str):  # format of reviews from 2025
        return chat, asked, predicted
    chat = chat or _objects(asked)
    last = max((i for i, message in enumerate(chat) if message.get("role") == "assistant"), default=-1)
    if last == 0 or not chat:
        raise BadField("no prompt among the messages")
    if last < 0:  # the chat has only the prompt, no answer
        return chat, join_chat(chat, "input"), predicted
    return chat, join_chat(chat[:last], "messages"), _answer_text(chat[last])


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _answer_text(message: Mapping[str, Any]) -> str | None:
    """Return the text of the model's message, its reasoning in ``<think>``; None if it has neither."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts: list[str] = []
    for part in parts:
        fields = part if isinstance(part, dict) else {}
        kind, text, thought = fields.get("type"), fields.get("text"), fields.get("reasoning")
        if kind == "reasoning" and isinstance(thought, str):
            texts.append(f"<think>{thought}</think>")
        elif kind == "text" and isinstance(text, str):
            texts.append(text)
    return "\n".join(texts) if texts else None


def _n_tokens(messages: list[Mapping[str, Any]]) -> int | None:
    """Return the number of tokens of the last message; None if it was not measured."""
    n = inner(messages[-1], "perf_metrics").get("output_tokens") if messages else None
    return n if type(n) is int and 0 < n < 2**31 else None


def _split(path: Path) -> tuple[Path, str]:
    """Return the folder that contains ``reviews``, and the model's name."""
    folder = path.absolute().parent
    work, model = split_folders(folder, "reviews")
    return work or folder, model


IMPORTER = Importer(
    name="evalscope",
    title="evalscope, reviews",
    suffixes=(".jsonl",),
    recognises=recognises,
    place=place,
    read_samples=read_samples,
    settings=settings,
)
