"""Samples that other tools wrote: one file in this folder reads one tool's dumps.

A file that defines ``IMPORTER`` is found by itself. Other distributions add importers through the entry-point group
``oversharp.importers``; an entry point names an ``Importer`` or a module that defines ``IMPORTER``.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Importer
from oversharp.diagnostics.ingest.formats.opening import is_packed, refuse_stand_in, unpacked
from oversharp.diagnostics.ingest.formats.rows import RECORDS_ASKED as RECORDS_ASKED
from oversharp.diagnostics.ingest.formats.rows import first_records, holds_records
from oversharp.diagnostics.records.errors import ConfigError, ImportFileError
from oversharp.diagnostics.records.plugins import find_records
from oversharp.diagnostics.records.types import COUNTS_ALONE

ENTRY_POINT_GROUP = "oversharp.importers"
#: Formats that are used only where they are named: nothing in a file tells them.
BY_NAME_ONLY = frozenset({"mapped", COUNTS_ALONE})
#: What a store has beside it: ``audit.made.json``, and the folder ``audit.tokens``.
_MADE, _TOKENS = ".made.json", ".tokens"
#: Tables that only --map can give a meaning. JSON is not among them: tools keep settings and averages in it.
_TABLES = frozenset({".csv", ".ndjson"})
_ZIP = b"PK\x03\x04"
_MAP = "name the fields with --map prompt=…,response=…,gold=…,reward=…,step=… or pass --format"


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file and who reads it."""

    path: Path
    importer: Importer


@dataclass(frozen=True, kw_only=True)
class FoundFiles:
    """What lies in the paths of an import, each file once.

    ``unknown``: of a known suffix, and nobody's format. ``refused``: of a known suffix and without a readable
    record, compressed Parquet, or a pickle that nobody allowed, each with the reason, one line without the path.
    """

    files: tuple[FoundFile, ...]
    unknown: tuple[Path, ...]
    refused: Mapping[Path, str]


@cache
def all_importers() -> Mapping[str, Importer]:
    """Every importer by name. Raises ``ConfigError`` for a broken or clashing plugin.

    >>> all_importers()["verl"].title
    'verl, validation and rollout dumps'
    """
    found = find_records(Importer, sys.modules[__name__], ENTRY_POINT_GROUP)
    return MappingProxyType(dict(sorted(found.items())))


def get_importer(name: str) -> Importer:
    """The importer of that name. Raises ``ConfigError`` with the nearest names.

    >>> get_importer("verl").name
    'verl'
    """
    known = all_importers()
    if name not in known:
        near = get_close_matches(name, known, n=3) or list(known)
        raise ConfigError(f"--format {name}: no such format; use one of: {', '.join(near)}")
    return known[name]


def find_files(paths: Sequence[Path], *, name: str | None = None, allow_pickle: bool = False) -> FoundFiles:
    """The files in ``paths`` (files or folders) and who reads each.

    ``name`` chooses one importer for all of them. Raises ``ImportFileError`` for a path that is not there, or if
    nothing can be read: the first cause there is.
    """
    importers = (
        [get_importer(name)] if name else [one for one in all_importers().values() if one.name not in BY_NAME_ONLY]
    )
    suffixes = {suffix for importer in importers for suffix in importer.suffixes}
    found: list[FoundFile] = []
    unknown: list[Path] = []
    refused: dict[Path, str] = {}
    seen = suffixes if name else suffixes | _TABLES
    for file in dict.fromkeys(file for path in paths for file in _files(path, seen, importers)):
        try:
            importer = _reader(file, importers, by_name=name is not None)
        except ImportFileError as error:
            refused[file] = str(error).removeprefix(f"{file}: ")
            continue
        if importer is None:
            unknown.append(file)
        elif importer.pickled and not allow_pickle:
            refused[file] = "is a pickle, which can run code when it is read; pass --allow-pickle if you made it"
        else:
            found.append(FoundFile(path=file, importer=importer))
    if not found:
        raise _nothing(paths, unknown, refused, suffixes)
    return FoundFiles(files=tuple(found), unknown=tuple(unknown), refused=refused)


def _files(path: Path, suffixes: set[str], importers: Sequence[Importer] = ()) -> list[Path]:
    if path.is_file():
        return [] if _is_beside_a_store(path) else [path]
    if not path.is_dir():
        raise ImportFileError(f"{path}: no such file or folder")
    candidates = (
        file
        for file in path.rglob("*")
        if file.suffix.lower() in suffixes
        or (is_packed(file) and unpacked(file).suffix.lower() in suffixes and not unpacked(file).exists())
        or any(one.is_also(file) for one in importers)
    )
    return sorted(file for file in candidates if file.is_file() and not _is_beside_a_store(file))


def _is_beside_a_store(file: Path) -> bool:
    """Whether oversharp wrote the file for itself: what a store was made from, and its log-probabilities."""
    return file.name.endswith(_MADE) or (
        file.parent.suffix == _TOKENS and file.absolute().parent.with_suffix(".duckdb").is_file()
    )


def _reader(file: Path, importers: Sequence[Importer], *, by_name: bool) -> Importer | None:
    """Who reads a file: with ``by_name`` the only importer, if the suffix is right.

    Raises ``ImportFileError`` for a file of such a suffix that holds no readable record, and for a compressed one
    that is no text.
    """
    if is_packed(file) and not holds_records(file):
        raise ImportFileError(f"{file}: is compressed; unpack it first")
    for one in importers:
        if one.is_also(file):
            return one
    candidates = [one for one in importers if unpacked(file).suffix.lower() in one.suffixes]
    for record in _heads(file) if candidates else ():
        for one in candidates:
            if by_name or one.recognises(file, record):
                return one
    return None


def _heads(file: Path) -> Iterator[Mapping[str, Any]]:
    """The first records, or nothing known of a file of another kind. Raises ``ImportFileError`` where none is there."""
    if holds_records(file):
        yield from first_records(file, RECORDS_ASKED)
        return
    refuse_stand_in(file)
    try:
        with file.open("rb") as content:
            start = content.read(len(_ZIP))
        if not start:
            raise ImportFileError(f"{file}: is empty")
        if start == _ZIP and not zipfile.is_zipfile(file):
            raise ImportFileError(f"{file}: a ZIP archive without its end; cut short? copy it again")
    except OSError as error:
        raise ImportFileError(f"{file}: cannot be read ({error.strerror})") from error
    yield {}


def _nothing(
    paths: Sequence[Path], unknown: Sequence[Path], refused: Mapping[Path, str], suffixes: set[str]
) -> ImportFileError:
    if refused:
        file, why = next(iter(refused.items()))
        return ImportFileError(f"{file}: {why}")
    endings = ", ".join(sorted(suffixes))
    if unknown and not holds_records(unknown[0]):
        return ImportFileError(f"{unknown[0]}: nobody's format; dumps of samples end in {endings}")
    if unknown:
        fields = ", ".join(next(first_records(unknown[0], 1)))
        return ImportFileError(f"{unknown[0]}: nobody's format ({fields}); {_MAP}")
    missing = f"{', '.join(map(str, paths))}: no dump of samples that ends in {endings}"
    mapped = set(get_importer("mapped").suffixes)
    near = next((file for path in paths for file in _files(path, mapped)), None)
    if near is None:
        return ImportFileError(missing)
    return ImportFileError(f"{missing}; of {near.name} {_MAP}")
