"""evalscope: reviews, ``{work_dir}/reviews/{model}/{dataset}_{subset}.jsonl``.

A row holds the chat with the model's answer as its last message, the ``target`` and the ``sample_score``. Samples of
one ``group_id`` are ``repeats`` of one problem. The score is the main one, or the one that --reward names; a sample
whose score is not usable has none. ``predictions`` hold no score and are not read. Temperature and the like are read
from ``configs/task_config.yaml``, if it is there. Run and step are in the model's name, else in the name of a folder
above ``reviews``.

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
    chat_text,
    gold_text,
    inner,
    numeric,
    optional_text,
    sampling_settings,
)
from oversharp.diagnostics.ingest.formats.rows import read_one_each
from oversharp.diagnostics.ingest.formats.steps import run_above
from oversharp.diagnostics.series.folders import run_and_step

_KNOWN_BY = frozenset({"index", "target", "sample_score"})
_REVIEWS = "reviews"
#: The block of a YAML file that holds plain numbers, and one of its lines.
_BLOCK = re.compile(r"^generation_config:[ ]*\n((?:[ ]+.*\n?)+)", re.MULTILINE)
_LINE = re.compile(r"^[ ]+(\w+):[ ]*([-+.\deE]+)[ ]*$", re.MULTILINE)


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a record has the fields of a row."""
    return record.keys() >= _KNOWN_BY and "score" in inner(record, "sample_score")


def place(path: Path) -> FilePlace:
    """Return run and step in the name of the model or a folder above; dataset and subset in the file's name."""
    work, model = _split(path)
    run, step = run_and_step(model)
    if step is None:
        above, step = run_above(work)
        run = above or run
    return FilePlace(run=run or None, step=step, task=path.stem)


def settings(path: Path) -> dict[str, float | int]:
    """Return the sampling settings of the run's configuration."""
    try:
        config = (_split(path)[0] / "configs" / "task_config.yaml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    block = _BLOCK.search(config)
    return sampling_settings(dict(_LINE.findall(block[1]))) if block else {}


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
    reward = numeric(values, name)
    messages, prompt, response = _conversation(fields, score)
    if response is None and reward is None:
        raise BadField("no answer of the model among the messages, and no prediction")
    answer = optional_text(score, "extracted_prediction")
    return Recorded(
        line=line,
        prompt=prompt,
        response=response or "",
        gold=_gold(fields.get("target")),
        reward=reward,
        problem=optional_text(sampled, "group_id") or optional_text(fields, "index"),
        answer=None if answer == response else answer,
        greedy=greedy,
        n_tokens=_n_tokens(messages),
    )


def _conversation(
    fields: Mapping[str, Any], score: Mapping[str, Any]
) -> tuple[list[Mapping[str, Any]], str, str | None]:
    """Return the messages, the prompt, and the response; None for a response that is null or missing."""
    messages, asked, prediction = fields.get("messages"), fields.get("input"), score.get("prediction")
    predicted = prediction if isinstance(prediction, str) else None
    chat = _objects(messages)
    if not chat and isinstance(asked, str):  # reviews of 2025
        return chat, asked, predicted
    chat = chat or _objects(asked)
    last = max((i for i, message in enumerate(chat) if message.get("role") == "assistant"), default=-1)
    if last == 0 or not chat:
        raise BadField("no prompt among the messages")
    if last < 0:  # the chat is the prompt alone
        return chat, chat_text(chat, "input"), predicted
    return chat, chat_text(chat[:last], "messages"), _answer_text(chat[last])


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _gold(target: object) -> str | None:
    """Return the answer; any of them where several are right."""
    return gold_text({"target": target}, "target")


def _answer_text(message: Mapping[str, Any]) -> str | None:
    """Return the text of the model's message, its reasoning inside ``<think>``; None without either."""
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
    """Return the number of tokens of the last message; None where the evaluation did not measure it."""
    n = inner(messages[-1], "perf_metrics").get("output_tokens") if messages else None
    return n if type(n) is int and 0 < n < 2**31 else None


def _split(path: Path) -> tuple[Path, str]:
    """Return the folder that holds ``reviews``, and the model's name."""
    folders = path.absolute().parts[:-1]
    if _REVIEWS not in folders:
        return path.absolute().parent, folders[-1] if folders else ""
    last = len(folders) - 1 - folders[::-1].index(_REVIEWS)
    return Path(*folders[:last]), "/".join(folders[last + 1 :])


IMPORTER = Importer(
    name="evalscope",
    title="evalscope, reviews",
    suffixes=(".jsonl",),
    recognises=recognises,
    place=place,
    read_samples=read_samples,
    settings=settings,
)
