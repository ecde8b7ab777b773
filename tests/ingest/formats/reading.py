"""Helpers of importer tests: write JSON Lines, and read and check all items of a file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Fault, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.fields import LARGEST_WHOLE


def reader(importer: ModuleType) -> Callable[..., list[Recorded | Fault]]:
    """Return ``read(path, reward, fields)`` for an importer's module."""

    def read(path: Path, reward: str | None = None, fields: Mapping[str, str] | None = None) -> list[Recorded | Fault]:
        return checked(importer.read_samples(path, ReadOptions(reward=reward, fields=fields or {})))

    return read


def samples(items: Iterable[Recorded | Fault]) -> list[Recorded]:
    return [one for one in items if isinstance(one, Recorded)]


def write_lines(path: Path, *records: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def checked(read: Iterable[Recorded | Fault]) -> list[Recorded | Fault]:
    """Return all items after checks of what the rest of the program assumes."""
    items = list(read)
    assert [one.line for one in items] == sorted(one.line for one in items)
    for item in items:
        assert type(item.line) is int
        assert item.line >= 1
        if isinstance(item, Fault):
            assert item.why
            continue
        assert isinstance(item.prompt, str)
        assert isinstance(item.response, str)
        for text in (item.prompt, item.response, item.gold, item.problem, item.answer, item.task):
            assert text is None or text.encode("utf-8") is not None
        for number in (item.reward, item.logp_sum, item.entropy_sum):
            assert number is None or (type(number) is float and math.isfinite(number))
        for count in (item.step, item.index, item.n_tokens):
            assert count is None or (type(count) is int and 0 <= count <= LARGEST_WHOLE)
        assert item.finish_reason in (None, "stop", "length")
        assert type(item.greedy) is bool
    return items
