"""What can be exported, in which formats, and the record of what was. Light: the command's help loads this."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.types import PICTURE_FORMATS as PICTURE_FORMATS
from oversharp.diagnostics.records.types import PictureFormat as PictureFormat

TableWhat = Literal["findings", "verdicts"]
FolderWhat = Literal["samples", "every_eval_ever", "plots"]
What = TableWhat | FolderWhat
TableFormat = Literal["csv", "parquet", "markdown", "latex"]
Format = TableFormat | PictureFormat
#: What a picture that is named is written as: itself, or its numbers as a table for a paper.
FigureFormat = PictureFormat | Literal["latex"]
#: What one may ask for: a kind of output, or all of them.
Asked = What | Literal["all"]

TABLES: tuple[TableWhat, ...] = get_args(TableWhat)
FOLDERS: tuple[FolderWhat, ...] = get_args(FolderWhat)
EVERYTHING: tuple[What, ...] = (*TABLES, *FOLDERS)
TABLE_FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)
#: What a table is written in where nobody says; LaTeX is for a paper, and holds pass@k alone.
DEFAULT_TABLE_FORMATS: tuple[TableFormat, ...] = ("csv", "parquet", "markdown")
#: Small, quick, and what most people come for; samples may be larger than everything else together.
DEFAULT_WHAT: tuple[What, ...] = TABLES


@dataclass(frozen=True, kw_only=True)
class Exported:
    """One file or folder that was written, with the number of its rows, samples or pictures.

    ``files`` are those of pictures that were named, which may lie in it beside others.
    """

    what: What
    path: Path
    n: int
    files: tuple[Path, ...] = ()

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """What was written, in the order in which it was asked for, and of which series.

    ``push`` is the command that publishes the samples, None where no repository was named.
    """

    series: tuple[str, ...]
    written: tuple[Exported, ...]
    push: str | None = None

    __repr__ = short_repr
