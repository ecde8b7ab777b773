"""Any JSON Lines, Parquet or CSV whose fields are named: --map prompt=…,response=…,score=….

Ours are prompt and response, which every record must have, and gold, score, step, problem, index, answer, n_tokens,
finish_reason, task and greedy. Dots reach into objects, and numbers into lists: ``doc.question``,
``messages.0.content``; a field whose own name has dots is found first. A list of chat messages becomes one text. The
step may also be the number that the file's name ends with (``40.jsonl``, ``step_40.csv``, ``checkpoint-40.parquet``),
or that of its folder.

For tools that have no importer of their own; OpenRLHF 0.11 is none of these, it writes no samples to the disk (only to
W&B and TensorBoard).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from diagnostics.errors import ImportFileError
from diagnostics.importers.contract import Fault, Importer, Place, ReadOptions, Recorded
from diagnostics.importers.rows import (
    BadField,
    chosen_score,
    finish_reason,
    optional_text,
    records,
    score,
    text,
    whole,
)

_STEP = re.compile(r"(?:\A|[_-])(\d{1,9})\Z", re.ASCII)


def place(path: Path) -> Place:
    """The step that the name of the file or of its folder ends with."""
    steps = (_STEP.search(name) for name in (path.stem, path.absolute().parent.name))
    return Place(step=next((int(step[1]) for step in steps if step), None))


def read(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """One sample per record. Raises ``ImportFileError`` if nothing tells where the prompt and the response are."""
    names = dict(options.fields)
    if options.score is not None:
        names["score"] = options.score
    if not names.keys() >= {"prompt", "response"}:
        raise ImportFileError(f"{path}: its fields have no meaning yet; pass --map prompt=…,response=…,score=…")
    paths = [(name, name.split(".")) for name in names.values() if "." in name]
    get = names.get
    prompt, response = names["prompt"], names["response"]
    gold, scored_by, step, problem, index = (get(name) for name in ("gold", "score", "step", "problem", "index"))
    answer, n_tokens, finish, task = (get(name) for name in ("answer", "n_tokens", "finish_reason", "task"))
    greedy = get("greedy")
    for record in records(path):
        if isinstance(record, Fault):
            yield record
            continue
        line, fields = record
        for name, parts in paths:
            if name not in fields:
                fields[name] = _dig(fields, parts)
        try:
            yield Recorded(
                line=line,
                prompt=text(fields, prompt),
                response=text(fields, response),
                gold=optional_text(fields, gold) if gold else None,
                score=chosen_score(fields, scored_by, "") if scored_by else None,
                step=whole(fields, step) if step else None,
                problem=optional_text(fields, problem) if problem else None,
                index=whole(fields, index) if index else None,
                answer=optional_text(fields, answer) if answer else None,
                greedy=score(fields, greedy) == 1.0 if greedy else False,
                n_tokens=whole(fields, n_tokens) if n_tokens else None,
                finish_reason=finish_reason(fields, finish) if finish else None,
                task=optional_text(fields, task) if task else None,
            )
        except BadField as bad:
            yield Fault(line, str(bad))


def _dig(value: Any, parts: Sequence[str]) -> Any:
    """What lies at the end of a path; None where it breaks off.

    >>> _dig({"doc": {"question": "2+2?"}, "outputs": ["4"]}, ["doc", "question"])
    '2+2?'
    >>> _dig({"outputs": ["4"]}, ["outputs", "0"]), _dig({"doc": "text"}, ["doc", "question"])
    ('4', None)
    """
    for part in parts:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


IMPORTER = Importer(
    name="mapped",
    title="any JSON Lines, Parquet or CSV whose fields are named",
    suffixes=(".jsonl", ".ndjson", ".json", ".parquet", ".csv"),
    recognises=lambda path, record: False,
    place=place,
    read=read,
)
