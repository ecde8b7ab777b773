"""Interface of importers. An importer detects the files of a tool and reads samples from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from oversharp.diagnostics.records.types import FinishReason
from oversharp.diagnostics.trajectories.record import Turns

if TYPE_CHECKING:
    import numpy as np
    import pyarrow
    from jaxtyping import Int32


class ToolScore(NamedTuple):
    """A tool's pass@k estimate from ``n`` responses. For k = 1 it is the share of correct responses."""

    metric: str
    value: float
    n: int
    k: int = 1


class Recorded(Struct, gc=False):
    """A response as another tool wrote it. Fields that the tool does not write are None.

    ``line`` is the position in the file, counted from 1: a line of JSON Lines or CSV, a row of Parquet, or a sample of
    an archive. Several samples may have the same line; lines never decrease. ``reward`` is the tool's score, on any
    scale. ``index`` is the tool's number of the response among all responses to its prompt. Responses without ``index``
    are numbered in file order. ``logp_sum`` and ``entropy_sum`` are in nats, at temperature 1 over the full vocabulary,
    summed over ``n_tokens`` tokens. ``turns`` is a response of several turns or with tool calls; ``response`` is then
    its ``model_text``. ``claim`` is the score of several responses together: this one and those that
    follow it in the same line.
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
    turns: Turns | None = None


#: Fields of ``Recorded`` that ``RecordedRows`` has as columns: all but ``line``, ``claim`` and ``turns``, in order.
_ROW_FIELDS = (
    "prompt", "response", "gold", "reward", "step", "problem", "index", "answer", "greedy", "n_tokens", "finish_reason",
    "logp_sum", "entropy_sum", "task", "cluster",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RecordedRows:
    """Consecutive samples of a file, one per line, with the fields of ``Recorded`` as columns.

    ``first`` is the line of the first sample. All ``columns`` have the same length. Texts are ``string``, whole numbers
    ``int32``, other numbers ``float64``. Prompt, response and ``greedy`` have no nulls. A field without a column is
    None in every row.
    """

    first: int
    columns: Mapping[str, pyarrow.Array]

    def __len__(self) -> int:
        return len(self.columns["response"])

    def rows(self, start: int, stop: int | None = None) -> RecordedRows:
        """Return the rows from ``start`` to ``stop`` as a view."""
        n = (len(self) if stop is None else min(stop, len(self))) - start
        columns = {name: column.slice(start, n) for name, column in self.columns.items()}
        return RecordedRows(first=self.first + start, columns=columns)

    def fitting(self, n_bytes: int) -> int:
        """Return how many of the first responses fit into ``n_bytes``, at least 1."""
        offsets_N = text_offsets(self.columns["response"])
        return max(1, int(offsets_N.searchsorted(int(offsets_N[0]) + n_bytes, side="right")) - 1)

    def records(self, places: Sequence[int] | None = None) -> Iterator[Recorded]:
        """Yield the samples at ``places``, or all samples."""
        import pyarrow as pa

        columns = [self.columns.get(name) for name in _ROW_FIELDS]
        lines: Sequence[int] = range(self.first, self.first + len(self))
        if places is not None:
            taken = pa.array(places, pa.int32())
            columns = [None if column is None else column.take(taken) for column in columns]
            lines = [self.first + place for place in places]
        return map(Recorded, lines, *(repeat(None) if column is None else column.to_pylist() for column in columns))


def single_samples(items: Iterable[Recorded | Fault | RecordedRows]) -> Iterator[Recorded | Fault]:
    """Yield the same samples and faults, one at a time."""
    for item in items:
        if isinstance(item, RecordedRows):
            yield from item.records()
        else:
            yield item


def text_offsets(texts: pyarrow.StringArray) -> Int32[np.ndarray, " text+1"]:
    """Return the start of each text in the buffer, followed by the end of the last text."""
    import numpy as np

    return np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]


class Fault(NamedTuple):
    """An unusable record.

    ``why`` is the reason. It contains no numbers, so that records with the same fault have the same text.
    """

    line: int
    why: str


@dataclass(frozen=True, kw_only=True)
class FilePlace:
    """Run (which becomes the series), step and task in the path of a file; None if absent."""

    run: str | None = None
    step: int | None = None
    task: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of the user.

    ``fields`` maps our field names to the tool's; ``reward`` is the tool's score field.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    reward: str | None = None


@dataclass(frozen=True, kw_only=True)
class ScoreTable:
    """Several scores of a file's samples, if the user did not choose one of them.

    ``score_of`` maps score name and problem to the mean over the problem's responses. ``taken`` describes the score
    used as reward. ``flag`` is the option that chooses another score.
    """

    score_of: Mapping[str, Mapping[str, float]]
    taken: str
    flag: str


def gather_scores(rows: Iterable[tuple[str, Mapping[str, float]]], *, taken: str, flag: str) -> ScoreTable | None:
    """Return each problem's mean score over its responses; None with fewer than two score names.

    >>> rows = [("a", {"strict": 0.0, "loose": 1.0}), ("a", {"strict": 1.0, "loose": 1.0})]
    >>> gather_scores(rows, taken="strict, the first", flag="--reward NAME").score_of
    {'strict': {'a': 0.5}, 'loose': {'a': 1.0}}
    """
    values: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for problem, scores in rows:
        for name, score in scores.items():
            values[name][problem].append(score)
    if len(values) < 2:
        return None
    means = {
        name: {problem: sum(scores) / len(scores) for problem, scores in by_problem.items()}
        for name, by_problem in values.items()
    }
    return ScoreTable(score_of=means, taken=taken, flag=flag)


def has_fields(*names: str) -> Callable[[Path, Mapping[str, Any]], bool]:
    """Return a function for ``Importer.recognises``: whether a record has all of these fields.

    >>> has_fields("input", "output")(Path("40.jsonl"), {"input": "2+2?", "output": "4", "score": 1.0})
    True
    """
    required = frozenset(names)
    return lambda path, record: record.keys() >= required


@dataclass(frozen=True, kw_only=True)
class Importer:
    """Importer of one tool's files.

    Attributes
    ----------
    suffixes
        Suffixes of its files, with the dot, lower case.
    recognises
        Function of a file and one of its first records: whether the tool wrote the file. The record is empty if the
        file is not JSON Lines, Parquet or CSV.
    read_samples
        Yields every sample of a file, and a ``Fault`` for each bad record. Raises ``ImportFileError`` for an unreadable
        file.
    place
        Run, step and task in the path.
    settings
        Sampling settings in a file, with the field names of ``SamplingSettings``.
    pickled
        Whether reading may run code from the file. The user then has to pass --allow-pickle.
    samples_of
        Returns a key of the file's samples, and whether the file has their scores. If two files have the same key, the
        file with scores is read.
    is_also
        Whether the tool wrote a file with another suffix, judged by its first bytes.
    parts
        Like ``read_samples``, but may yield several rows at once, which is faster.
    untold
        What the tool's files lack about trajectories, for a note.
    note
        Returns a note about a file, such as scores that are not used; None without one.
    score_table
        Returns all scores of a file; None if the file has only one score, or the user chose one.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    read_samples: Callable[[Path, ReadOptions], Iterator[Recorded | Fault]]
    recognises: Callable[[Path, Mapping[str, Any]], bool] = field(default=lambda path, record: False)
    place: Callable[[Path], FilePlace] = field(default=lambda path: FilePlace())
    settings: Callable[[Path], Mapping[str, Any]] = field(default=lambda path: {})
    pickled: bool = False
    samples_of: Callable[[Path], tuple[str, bool] | None] = field(default=lambda path: None)
    is_also: Callable[[Path], bool] = field(default=lambda path: False)
    parts: Callable[[Path, ReadOptions], Iterator[Recorded | Fault | RecordedRows]] | None = None
    score_table: Callable[[Path, ReadOptions], ScoreTable | None] = field(default=lambda path, options: None)
    untold: str = ""
    note: Callable[[Path], str | None] = field(default=lambda path: None)
    doc: str = ""
