"""Plan an import: the files to read, with the series and step of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import FoundFile, FoundFiles, find_files
from oversharp.diagnostics.ingest.formats.contract import FilePlace, Importer
from oversharp.diagnostics.ingest.formats.mapped import has_response, require_fields
from oversharp.diagnostics.ingest.formats.opening import without_compression
from oversharp.diagnostics.ingest.formats.rows import has_records
from oversharp.diagnostics.records.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """A file to import.

    ``step`` is None if only its records have steps. If ``fixed``, the steps of the records are ignored. ``sampling``
    has the sampling settings in the file.
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
    """Files in reading order, files of unrecognized format, and unreadable files with the reason."""

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

    Each tool and run is a separate series. Raises ``ImportFileError`` if no file can be read, and ``ConfigError`` if
    the flags contradict the files.
    """
    if not paths:
        raise ConfigError("no files given; pass a dump or a folder of dumps")
    roots = [Path(path).expanduser() for path in paths]
    listed = _find_dumps(roots, config)
    sources, unknown, refused = listed.files, listed.unknown, listed.refused
    base_sources: tuple[FoundFile, ...] = ()
    if config.base is not None:
        at_base = _find_dumps([config.base.expanduser()], config)
        base_sources, refused = at_base.files, {**refused, **at_base.refused}
        unknown = tuple(dict.fromkeys(unknown + at_base.unknown))
        base_paths = {source.path.resolve() for source in base_sources}
        sources = tuple(source for source in sources if source.path.resolve() not in base_paths)
    steps = {step for source in sources if (step := _place(source).step) is not None}
    if config.step is not None and len(steps) > 1:
        raise ConfigError(
            f"--step {config.step}: the file names have several steps ({', '.join(map(str, sorted(steps)))}); import "
            "one step at "
            "a time, or leave out --step"
        )
    files = [_plan_file(source, roots[0], config) for source in sources]
    runs = dict.fromkeys(file.series for file in files)
    if len(runs) > 1 and (config.name is not None or base_sources):
        flag = "--name" if config.name is not None else "--base"
        raise ConfigError(f"{flag}: the files are from several runs ({', '.join(runs)}); import one run at a time")
    series = config.name or next(iter(runs), config.name or roots[0].resolve().name)
    files = [replace(file, series=series) for file in files] if len(runs) <= 1 else files
    files += [
        replace(_plan_file(source, roots[0], config), series=series, step=0, fixed=True) for source in base_sources
    ]
    require_fields([file.path for file in files], config.map)
    return ImportPlan(files=tuple(_split_tools(files)), unknown=unknown, refused=refused)


def _find_dumps(paths: Sequence[Path], config: ImportConfig) -> FoundFiles:
    """Return the files of an import.

    With ``--map``, files without the response field are ``unknown``.
    """
    listed = find_files(paths, name=config.chosen_format, allow_pickle=config.allow_pickle)
    if not config.map:
        return listed
    files = tuple(file for file in listed.files if has_response(file.path, config.map))
    if not files:  # require_fields reports the missing field
        return listed
    other = tuple(file.path for file in listed.files if file not in files)
    return replace(listed, files=files, unknown=listed.unknown + other)


def _place(file: FoundFile) -> FilePlace:
    """Return run, step and task from the path. A compression suffix is ignored."""
    return file.importer.place(without_compression(file.path) if has_records(file.path) else file.path)


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


def _split_tools(files: Sequence[PlannedFile]) -> list[PlannedFile]:
    """Split the files of several tools in one run into separate series, and sort all files."""
    tools: dict[str, set[str]] = {}
    for file in files:
        tools.setdefault(file.series, set()).add(file.importer.name)
    mixed = {series for series, names in tools.items() if len(names) > 1}
    split = [
        replace(file, series=f"{file.series} ({file.importer.name})") if file.series in mixed else file
        for file in files
    ]
    return sorted(split, key=lambda file: (file.series, -1 if file.step is None else file.step, str(file.path)))


def without_copies(planned: Sequence[PlannedFile]) -> tuple[tuple[PlannedFile, ...], tuple[str, ...]]:
    """Remove files whose samples another file has with scores.

    Return the other files, and a note per removed file.
    """
    samples = {file.path: file.importer.samples_of(file.path) for file in planned}
    scored: dict[tuple[str, int | None], Path] = {}
    for file in planned:
        key = samples[file.path]
        if key is not None and key[1]:
            scored.setdefault((key[0], file.step), file.path)
    kept, notes = [], []
    for file in planned:
        key = samples[file.path]
        other = None if key is None or key[1] else scored.get((key[0], file.step))
        if other is None:
            kept.append(file)
        else:
            notes.append(f"{file.path} not read: {other} has the same samples with their scores")
    return tuple(kept), tuple(notes)
