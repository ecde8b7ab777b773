"""Plans an import: which files are read, into which series, and of which step each file is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import FoundFile, FoundFiles, find_files
from oversharp.diagnostics.ingest.formats.contract import FilePlace, Importer
from oversharp.diagnostics.ingest.formats.mapped import holds_response, require_fields
from oversharp.diagnostics.ingest.formats.opening import without_compression
from oversharp.diagnostics.ingest.formats.rows import holds_records
from oversharp.diagnostics.records.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """One file. ``step`` is None where only its records have it; ``fixed``: the records' steps are ignored.

    ``sampling``: sampling settings that the file names.
    """

    path: Path
    importer: Importer
    series: str
    step: int | None
    fixed: bool
    task: str | None
    sampling: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ImportPlan:
    """Files in reading order, and files that are not read.

    ``unknown``: unrecognized formats. ``refused``: unreadable files, each with the reason, without the path.
    """

    files: tuple[PlannedFile, ...]
    unknown: tuple[Path, ...] = ()
    refused: Mapping[Path, str] = field(default_factory=dict)

    @property
    def by_series(self) -> dict[str, tuple[PlannedFile, ...]]:
        """The files of each series."""
        names = dict.fromkeys(file.series for file in self.files)
        return {name: tuple(file for file in self.files if file.series == name) for name in names}


def plan_import(paths: Sequence[Path | str], config: ImportConfig) -> ImportPlan:
    """Return the plan for the files in ``paths`` and ``--base``.

    Files of several tools in one run become several series. Raises ``ImportFileError`` where no file can be read, and
    ``ConfigError`` where the flags contradict the files.
    """
    if not paths:
        raise ConfigError("no files given; pass a dump or a folder of dumps")
    given = [Path(path).expanduser() for path in paths]
    inside = _find(given, config)
    files_inside, unknown, refused = inside.files, inside.unknown, inside.refused
    based: tuple[FoundFile, ...] = ()
    if config.base is not None:
        at_base = _find([config.base.expanduser()], config)
        based, refused = at_base.files, {**refused, **at_base.refused}
        unknown = tuple(dict.fromkeys(unknown + at_base.unknown))
        places = {file_found.path.resolve() for file_found in based}
        files_inside = tuple(file_found for file_found in files_inside if file_found.path.resolve() not in places)
    named = {step for file_found in files_inside if (step := _place(file_found).step) is not None}
    if config.step is not None and len(named) > 1:
        raise ConfigError(
            f"--step {config.step}: the files are of steps {', '.join(map(str, sorted(named)))} by their names; import "
            "those of one step at a time, or leave --step out"
        )
    files = [_plan_file(file_found, given[0], config) for file_found in files_inside]
    runs = dict.fromkeys(file.series for file in files)
    if len(runs) > 1 and (config.name is not None or based):
        flag = "--name" if config.name is not None else "--base"
        raise ConfigError(f"{flag}: the files are of several runs ({', '.join(runs)}); import one at a time")
    series = config.name or next(iter(runs), config.name or given[0].resolve().name)
    files = [replace(file, series=series) for file in files] if len(runs) <= 1 else files
    files += [
        replace(_plan_file(file_found, given[0], config), series=series, step=0, fixed=True) for file_found in based
    ]
    require_fields([file.path for file in files], config.map)
    return ImportPlan(files=tuple(_without_mixing(files)), unknown=unknown, refused=refused)


def _find(paths: Sequence[Path], config: ImportConfig) -> FoundFiles:
    """Return the files of an import; with ``--map``, files without the response field count as unknown."""
    inside = find_files(paths, name=config.chosen_format, allow_pickle=config.allow_pickle)
    if not config.map:
        return inside
    files = tuple(file for file in inside.files if holds_response(file.path, config.map))
    if not files:  # require_fields names the field that is missing
        return inside
    other = tuple(file.path for file in inside.files if file not in files)
    return replace(inside, files=files, unknown=inside.unknown + other)


def _place(file: FoundFile) -> FilePlace:
    """Return the run, step and task in the path, without the suffix of a compressed file of records."""
    return file.importer.place(without_compression(file.path) if holds_records(file.path) else file.path)


def _plan_file(file: FoundFile, root: Path, config: ImportConfig) -> PlannedFile:
    place = _place(file)
    folder = root.resolve() if root.is_dir() else root.resolve().parent
    return PlannedFile(
        path=file.path,
        importer=file.importer,
        series=place.run or folder.name or "run",
        step=place.step if config.step is None else config.step,
        fixed=config.step is not None,
        task=place.task,
        sampling=file.importer.settings(file.path),
    )


def _without_mixing(files: Sequence[PlannedFile]) -> list[PlannedFile]:
    tools: dict[str, set[str]] = {}
    for file in files:
        tools.setdefault(file.series, set()).add(file.importer.name)
    mixed = {series for series, names in tools.items() if len(names) > 1}
    named = [
        replace(file, series=f"{file.series} ({file.importer.name})") if file.series in mixed else file
        for file in files
    ]
    return sorted(named, key=lambda file: (file.series, -1 if file.step is None else file.step, str(file.path)))
