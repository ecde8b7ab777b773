"""Samples that other tools wrote: one file in this folder reads one tool's dumps.

A file that defines ``IMPORTER`` is found by itself. Other distributions add importers through the entry-point group
``oversharp.importers``; an entry point names an ``Importer`` or a module that defines ``IMPORTER``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType

from diagnostics.errors import ConfigError, ImportFileError
from diagnostics.importers.contract import Importer
from diagnostics.importers.rows import first_record

ENTRY_POINT_GROUP = "oversharp.importers"
#: Formats that are used only where they are named: nothing in a file tells them.
BY_NAME_ONLY = frozenset({"mapped"})


@dataclass(frozen=True, kw_only=True)
class Found:
    """A file and who reads it."""

    path: Path
    importer: Importer


@cache
def all_importers() -> Mapping[str, Importer]:
    """Every importer by name. Raises ``ConfigError`` for a broken or clashing plugin.

    >>> all_importers()["verl"].title
    'verl, validation and rollout dumps'
    """
    found: dict[str, Importer] = {}
    for where, importer in (*_own(), *_plugins()):
        if importer.name in found:
            raise ConfigError(f"importer {importer.name!r} is defined twice, again by {where}; uninstall one of them")
        found[importer.name] = importer
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


def find_files(paths: Sequence[Path], *, name: str | None = None) -> tuple[list[Found], list[Path]]:
    """The files in ``paths`` (files or folders) with who reads each, and those of a known suffix that nobody reads.

    ``name`` chooses one importer for all of them. Raises ``ImportFileError`` for a path that is not there, or if
    nothing can be read.
    """
    importers = (
        [get_importer(name)] if name else [one for one in all_importers().values() if one.name not in BY_NAME_ONLY]
    )
    suffixes = {suffix for importer in importers for suffix in importer.suffixes}
    found: list[Found] = []
    unknown: list[Path] = []
    for path in paths:
        for file in _files(path, suffixes):
            importer = importers[0] if name and file.suffix.lower() in suffixes else _reader(file, importers)
            if importer is None:
                unknown.append(file)
            else:
                found.append(Found(path=file, importer=importer))
    if not found:
        raise _nothing(paths, unknown, suffixes)
    return found, unknown


def _files(path: Path, suffixes: set[str]) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ImportFileError(f"{path}: no such file or folder")
    return sorted(file for file in path.rglob("*") if file.suffix.lower() in suffixes and file.is_file())


def _reader(file: Path, importers: Sequence[Importer]) -> Importer | None:
    candidates = [one for one in importers if file.suffix.lower() in one.suffixes]
    record = first_record(file) if candidates else {}
    return next((one for one in candidates if one.recognises(file, record)), None)


def _nothing(paths: Sequence[Path], unknown: Sequence[Path], suffixes: set[str]) -> ImportFileError:
    given = ", ".join(map(str, paths))
    if not unknown:
        return ImportFileError(f"{given}: no file that ends in {', '.join(sorted(suffixes))}")
    fields = ", ".join(first_record(unknown[0])) or "no readable record"
    return ImportFileError(
        f"{unknown[0]}: nobody's format ({fields}); name its fields with "
        "--map prompt=…,response=…,gold=…,score=…,step=… or pass --format"
    )


def _own() -> Iterator[tuple[str, Importer]]:
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        if hasattr(module, "IMPORTER"):
            yield module.__name__, _documented(module.IMPORTER, module)


def _plugins() -> Iterator[tuple[str, Importer]]:
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            loaded = entry_point.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"importer plugin {entry_point.value}: {error}; repair or uninstall the package that provides it"
            ) from error
        importer = getattr(loaded, "IMPORTER", loaded)
        if not isinstance(importer, Importer):
            raise ConfigError(f"importer plugin {entry_point.value}: a {type(importer).__name__}, not an Importer")
        yield entry_point.value, _documented(importer, sys.modules[entry_point.module])


def _documented(importer: Importer, module: ModuleType) -> Importer:
    return importer if importer.doc else replace(importer, doc=inspect.cleandoc(module.__doc__ or ""))
