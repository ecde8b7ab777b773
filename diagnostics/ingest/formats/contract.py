"""Interface of importers, which detect the files of a tool and read samples from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from oversharp.diagnostics.records.types import FinishReason

if TYPE_CHECKING:
    import numpy as np
    import pyarrow
    from jaxtyping import Int32


class ToolScore(NamedTuple):
    """A tool's score of ``n`` responses together: their estimate of pass@k, for k = 1 the share of correct ones."""

    metric: str
    value: float
    n: int
    k: int = 1


class Recorded(Struct, gc=False):
    """A response as another tool wrote it. Fields that the tool does not write are None.

    ``line`` is its position in the file, from 1: a line of JSON Lines or CSV, a row of Parquet, a sample of an archive.
    Several samples may have the same line; lines never decrease. ``reward`` is the tool's own score, on any scale.
    ``index`` is the tool's number of the response to its prompt; without it, responses are numbered in file order.
    ``logp_sum`` and ``entropy_sum`` are in nats, at temperature 1 over the full vocabulary, summed over ``n_tokens``
    tokens. ``claim`` is the score of this and the following responses to the same prompt in the same line.
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


#: The fields of ``Recorded`` in ``RecordedRows``, in order, after ``line``.
_ROW_FIELDS = (
    "prompt", "response", "gold", "reward", "step", "problem", "index", "answer", "greedy", "n_tokens", "finish_reason",
    "logp_sum", "entropy_sum", "task", "cluster",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RecordedRows:
    """Consecutive samples of a file, one per line, with the fields of ``Recorded`` as columns.

    ``first`` is the line of the first. ``columns`` have the same length; texts are ``string``, whole numbers ``int32``,
    other numbers ``float64``. Prompt, response and ``greedy`` have no nulls; a field without a column is None in every
    row.
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
        """Return the number of first responses that fit into ``n_bytes``, at least 1."""
        offsets_N = text_offsets(self.columns["response"])
        return max(1, int(offsets_N.searchsorted(int(offsets_N[0]) + n_bytes, side="right")) - 1)

    def records(self, places: Sequence[int] | None = None) -> Iterator[Recorded]:
        """Yield the samples at ``places``, by default all."""
        import pyarrow as pa

        columns = [self.columns.get(name) for name in _ROW_FIELDS]
        lines: Sequence[int] = range(self.first, self.first + len(self))
        if places is not None:
            taken = pa.array(places, pa.int32())
            columns = [None if column is None else column.take(taken) for column in columns]
            lines = [self.first + place for place in places]
        return map(Recorded, lines, *(repeat(None) if column is None else column.to_pylist() for column in columns))


def text_offsets(texts: pyarrow.StringArray) -> Int32[np.ndarray, " text+1"]:
    """Return the start of each text in the buffer, and the end of the last."""
    import numpy as np

    return np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]


class Fault(NamedTuple):
    """An unusable record. ``why`` is the same text for all records with that fault, without numbers."""

    line: int
    why: str


@dataclass(frozen=True, kw_only=True)
class FilePlace:
    """Run (the series), step and task in the path of a file; None if absent."""

    run: str | None = None
    step: int | None = None
    task: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of the user: ``fields`` maps our field names to the tool's; ``reward`` is the tool's score field."""

    fields: Mapping[str, str] = field(default_factory=dict)
    reward: str | None = None


@dataclass(frozen=True, kw_only=True)
class ScoreTable:
    """Several scores of a file's samples, of which the user chose none.

    ``score_of`` has the mean over a problem's responses, by score name and problem. ``taken`` describes the score that
    is the reward, ``flag`` the option that chooses another.
    """

    score_of: Mapping[str, Mapping[str, float]]
    taken: str
    flag: str


def gather_scores(rows: Iterable[tuple[str, Mapping[str, float]]], *, taken: str, flag: str) -> ScoreTable | None:
    """Return the mean scores per problem, from the scores of each response; None with fewer than two names.

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
    """Return a condition for ``Importer.recognises``: the record has all of these fields.

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
        Whether a file is the tool's, given one of its first records; an empty record if the file is not JSON Lines,
        Parquet or CSV.
    read_samples
        Yields every sample of a file. Bad records become faults; raises ``ImportFileError`` for an unreadable file.
    place
        Run, step and task in the path.
    settings
        Sampling settings in a file, with the field names of ``SamplingSettings``.
    pickled
        Whether reading may run code from the file, so that the user has to allow it.
    samples_of
        Identity of the samples of a file, and whether it has their scores. Of two files with the same samples the
        scored one is read.
    is_also
        Whether a file with another suffix is the tool's, by its first bytes.
    parts
        As ``read_samples``, but may return several rows at once, which is faster.
    score_table
        Scores of a file where several may be the reward; None if there is only one, or the user chose it.
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
    doc: str = ""
