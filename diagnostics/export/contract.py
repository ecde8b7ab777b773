"""Kinds of output, their formats, and the result of an export.

The command's help imports this module, so it has no heavy imports.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.types import PICTURE_FORMATS as PICTURE_FORMATS
from oversharp.diagnostics.records.types import PictureFormat as PictureFormat

TableWhat = Literal["findings", "verdicts"]
FolderWhat = Literal["samples", "every_eval_ever", "atif", "plots"]
What = TableWhat | FolderWhat
TableFormat = Literal["csv", "parquet", "markdown", "latex"]
Format = TableFormat | PictureFormat
#: Formats of a single figure (--figure): a picture, or its numbers as a LaTeX table.
FigureFormat = PictureFormat | Literal["latex"]
#: Values of --what: a kind of output, or all.
RequestedWhat = What | Literal["all"]

TABLES: tuple[TableWhat, ...] = get_args(TableWhat)
FOLDERS: tuple[FolderWhat, ...] = get_args(FolderWhat)
EVERYTHING: tuple[What, ...] = (*TABLES, *FOLDERS)
TABLE_FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)
#: Default formats of tables. LaTeX is excluded because it only has pass@k, for a paper.
DEFAULT_TABLE_FORMATS: tuple[TableFormat, ...] = ("csv", "parquet", "markdown")
#: Default outputs: the small ones. Samples may be larger than all other outputs together.
DEFAULT_WHAT: tuple[What, ...] = TABLES


@dataclass(frozen=True, kw_only=True)
class Exported:
    """One written file or folder, with the number of its rows, samples or pictures.

    ``files`` lists the files of the requested figures, because their folder may contain others.
    """

    what: What
    path: Path
    n: int
    files: tuple[Path, ...] = ()

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """Exported series and written outputs, in the requested order.

    ``push`` is the shell command that uploads the samples; None if no repository was given.
    """

    series: tuple[str, ...]
    written: tuple[Exported, ...]
    push: str | None = None

    __repr__ = short_repr
