"""Interface of importers: recognise the files of one tool, and read samples from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """A tool's score of ``n`` responses together: pass@k estimated from them; with k = 1 the share of correct ones."""

    metric: str
    value: float
    n: int
    k: int = 1


class Recorded(Struct, gc=False):
    """One response as another tool wrote it. Fields that the tool does not write are None.

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


#: The fields of ``Recorded`` that rows have, in its order, after ``line``.
_ROW_FIELDS = (
    "prompt", "response", "gold", "reward", "step", "problem", "index", "answer", "greedy", "n_tokens", "finish_reason",
    "logp_sum", "entropy_sum", "task", "cluster",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RecordedRows:
    """Samples that follow each other in a file, one a line: of each the fields of ``Recorded``, as columns.

    ``first``: the line of the first. Prompt, response and ``greedy`` have no nulls; a field without a column is None in
    every row. ``columns``: by name, all of one length; texts ``string``, whole numbers ``int32``, others ``float64``.
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
        """Return how many of the first responses fit into ``n_bytes``; at least one."""
        offsets_N = text_offsets(self.columns["response"])
        return max(1, int(offsets_N.searchsorted(int(offsets_N[0]) + n_bytes, side="right")) - 1)

    def records(self, places: Sequence[int] | None = None) -> Iterator[Recorded]:
        """Yield the samples at ``places``; all samples without any."""
        import pyarrow as pa

        columns = [self.columns.get(name) for name in _ROW_FIELDS]
        lines: Sequence[int] = range(self.first, self.first + len(self))
        if places is not None:
            taken = pa.array(places, pa.int32())
            columns = [None if column is None else column.take(taken) for column in columns]
            lines = [self.first + place for place in places]
        return map(Recorded, lines, *(repeat(None) if column is None else column.to_pylist() for column in columns))


def text_offsets(texts: pyarrow.StringArray) -> Int32[np.ndarray, " text+1"]:
    """Return the start of each text in its buffer, and the end of the last."""
    import numpy as np

    return np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]


class Fault(NamedTuple):
    """A record that cannot be used, and why: ``why`` is the same for all records with that fault, without numbers."""

    line: int
    why: str


@dataclass(frozen=True, kw_only=True)
class FilePlace:
    """Run, step and task in the path of a file; None for those that are not there. A ``run`` is a series."""

    run: str | None = None
    step: int | None = None
    task: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of the user. ``fields`` maps our names to theirs; ``reward`` names their field with the score."""

    fields: Mapping[str, str] = field(default_factory=dict)
    reward: str | None = None


@dataclass(frozen=True, kw_only=True)
class ScoreTable:
    """Scores of a file's samples under several names, where the tool wrote several and the user chose none.

    ``score_of``: by name and problem, the mean over the problem's responses. ``taken`` says which of them is the
    reward, ``flag`` which option chooses another.
    """

    score_of: Mapping[str, Mapping[str, float]]
    taken: str
    flag: str


@dataclass(frozen=True, kw_only=True)
class Importer:
    """Importer of one tool's files.

    Attributes
    ----------
    suffixes
        Suffixes of its files, with the dot, lower case.
    recognises
        Whether a file is the tool's, given its first records one after the other; an empty record where the file is
        none of JSON Lines, Parquet and CSV.
    read_samples
        Every sample of a file. It never stops at a bad record, and raises ``ImportFileError`` for an unreadable file.
    place
        Run, step and task in the path.
    settings
        Sampling settings that a file names, with the field names of ``SamplingSettings``.
    pickled
        Whether reading may run code from the file, so that the user has to allow it.
    samples_of
        Name of the samples of a file, and whether it has their scores. Of two files with the same samples the scored
        one is read.
    is_also
        Whether a file with any other suffix is the tool's, by how it begins.
    parts
        As ``read_samples``, and may return rows together: the same samples in less time.
    score_table
        Scores of a file where several may be the reward; None where there is one, or the user chose it.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    recognises: Callable[[Path, Mapping[str, Any]], bool]
    read_samples: Callable[[Path, ReadOptions], Iterator[Recorded | Fault]]
    place: Callable[[Path], FilePlace] = field(default=lambda path: FilePlace())
    settings: Callable[[Path], Mapping[str, Any]] = field(default=lambda path: {})
    pickled: bool = False
    samples_of: Callable[[Path], tuple[str, bool] | None] = field(default=lambda path: None)
    is_also: Callable[[Path], bool] = field(default=lambda path: False)
    parts: Callable[[Path, ReadOptions], Iterator[Recorded | Fault | RecordedRows]] | None = None
    score_table: Callable[[Path, ReadOptions], ScoreTable | None] = field(default=lambda path, options: None)
    doc: str = ""
