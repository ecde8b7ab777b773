"""What an importer is: it recognises the files of one tool and reads samples from them, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from diagnostics.records.types import FinishReason


class ToolScore(NamedTuple):
    """What a tool says of ``n`` responses together: pass@k, estimated from them; with k = 1 the share of right ones."""

    metric: str
    value: float
    n: int
    k: int = 1


class Recorded(Struct, gc=False):
    """One response as another tool wrote it down. What the tool does not say is None.

    ``line`` is its place in the file, from 1: a line of JSON Lines or CSV, a row of Parquet, a sample of an archive.
    Several samples may have one line; lines never go back. ``reward`` is the tool's own score, of any scale. ``index``
    numbers the responses to one prompt where the tool does, else the order of the file counts. ``logp_sum`` and
    ``entropy_sum``: nats, temperature 1, full vocabulary, summed over the response's ``n_tokens`` tokens. ``claim`` is
    of this response and those to the same prompt that follow it in its line.
    """

    line: int
    prompt: str
    response: str
    gold: str | None = None
    reward: float | None = None
    step: int | None = None
    problem: str | None = None
    index: int | None = None
    answer: str | None = None
    greedy: bool = False
    n_tokens: int | None = None
    finish_reason: FinishReason | None = None
    logp_sum: float | None = None
    entropy_sum: float | None = None
    task: str | None = None
    cluster: str | None = None
    claim: ToolScore | None = None


class Fault(NamedTuple):
    """A record that cannot be used, and why: ``why`` is the same for all records with that fault, without numbers."""

    line: int
    why: str


@dataclass(frozen=True, kw_only=True)
class FilePlace:
    """What a file's place says of its samples; None where it says nothing. ``run`` tells series apart."""

    run: str | None = None
    step: int | None = None
    task: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What the user says about the files. ``fields`` maps our names to theirs; ``reward`` names their score's field."""

    fields: Mapping[str, str] = field(default_factory=dict)
    reward: str | None = None


@dataclass(frozen=True, kw_only=True)
class Importer:
    """The files of one tool.

    ``suffixes``: of its files, with the dot, lower case. ``recognises`` is asked of a file with such a suffix and one
    of its first records (empty where the file is none of JSON Lines, Parquet and CSV), one after the other. ``place``
    tells what the path says, given the folder that the user named. ``read`` gives every sample of a file; it never
    stops at a bad record, and raises ``ImportFileError`` for a file that cannot be read at all. ``pickled``: reading
    may run code from the file, so the user has to allow it. ``is_also`` is asked of files with any other suffix: such a
    file may be the tool's by how it begins. ``settings`` are the tool's sampling settings as far as a file tells them,
    with the field names of ``SamplingSettings``.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    recognises: Callable[[Path, Mapping[str, Any]], bool]
    read: Callable[[Path, ReadOptions], Iterator[Recorded | Fault]]
    place: Callable[[Path], FilePlace] = field(default=lambda path: FilePlace())
    settings: Callable[[Path], Mapping[str, Any]] = field(default=lambda path: {})
    pickled: bool = False
    is_also: Callable[[Path], bool] = field(default=lambda path: False)
    doc: str = ""
