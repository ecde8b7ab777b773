"""``oversharp export``: write outputs of a store atomically."""

from __future__ import annotations

import errno
import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as replaced
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from oversharp.diagnostics.export.contract import (
    DEFAULT_TABLE_FORMATS,
    DEFAULT_WHAT,
    EVERYTHING,
    FOLDERS,
    PICTURE_FORMATS,
    TABLE_FORMATS,
    TABLES,
    Exported,
    ExportResult,
    FigureFormat,
    FolderWhat,
    Format,
    RequestedWhat,
    TableFormat,
    TableWhat,
    What,
)
from oversharp.diagnostics.export.tables import (
    ENDINGS,
    READ_TABLES,
    findings,
    n_rows,
    write_table,
)
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.store import Store

_Name = TypeVar("_Name", bound=str)


class PlotWriter(Protocol):
    """Function that writes figures of the series in a store into a folder."""

    def __call__(
        self,
        store: Store,
        series: tuple[str, ...],
        formats: Sequence[FigureFormat],
        folder: Path,
        progress: ProgressSink,
        *,
        figures: Sequence[str],
        replace: bool,
    ) -> tuple[str, ...]:
        """Write the figures listed in ``figures``, or all, in each of ``formats``; return the file names.

        Raises ``ConfigError`` if a file exists, unless ``replace``.
        """


#: Marker file of an exported folder. Only folders with this file may be replaced.
MARKER = "oversharp-export.json"
#: File in a folder during an export. It lists the names that a killed export may leave behind.
UNFINISHED = ".oversharp-export-unfinished.json"


def export(
    store_path: Path,
    out: Path | None = None,
    *,
    what: Sequence[RequestedWhat] = DEFAULT_WHAT,
    formats: Sequence[Format] = (),
    figures: Sequence[str] = (),
    push: str | None = None,
    series: Sequence[str] | None = None,
    replace: bool = False,
    memory_gib: float | None = None,
    write_plots: PlotWriter,
    progress: ProgressSink | None = None,
) -> ExportResult:
    """Write outputs of a store into the folder ``out`` (default: ``export`` next to the store).

    Each output is written atomically.

    Args:
        what: Kinds of output. ``findings`` and ``verdicts`` are files, in each of the table ``formats``. ``samples`` is
            a folder for ``datasets.load_dataset``, ``every_eval_ever`` a folder of records of that schema, ``atif`` a
            folder of trajectories in Harbor's format, ``plots`` a folder of the report's figures in each of the picture
            ``formats``. ``all`` is everything.
        formats: Defaults: all table formats but LaTeX, which contains only pass@k; svg for pictures.
        figures: Write only these figures, added to those of earlier exports. LaTeX then is a table of their numbers.
        push: Name of the samples' dataset on the hub. By default only the samples are written then. The result has the
            command that publishes them; nothing is uploaded.
        series: Default: all audited series.
        replace: Replace outputs of earlier exports. Otherwise an existing output is an error, unless a killed export
            left it.
        write_plots: Function that draws the figures.

    Raises:
        ConfigError: an unknown name, a format that fits none of the outputs, or an ``out`` that cannot be used.
        StoreError: the store or series does not exist or has no such data, or a file cannot be written.
    """
    requested = [name for kind in what for name in (EVERYTHING if kind == "all" else (kind,))]
    wanted = _check_names(requested, EVERYTHING, "--what")
    if figures and wanted == DEFAULT_WHAT:
        wanted = ("plots",)
    if figures and "plots" not in wanted:
        raise ConfigError(f"--figure {figures[0]}: figures belong to plots; add plots to --what")
    if push is not None:
        wanted = _choose_pushed(push, wanted)
    table_formats, picture_formats = _choose_formats(formats, wanted, figures)
    folder = store_path.parent / "export" if out is None else out
    with Store.open(store_path, read_only=True) as store:
        store.bound_memory(memory_gib)
        chosen = _choose_series(store, series)
        job = _ExportJob(
            store=store,
            series=chosen,
            folder=folder,
            table_formats=table_formats,
            picture_formats=picture_formats,
            figures=tuple(figures),
            push=push,
            replace=replace,
            write_plots=write_plots,
            progress=progress or SilentProgress(),
        )
        targets, left = job.targets(wanted), _left_unfinished(folder)
        for target in targets:
            joined = bool(figures) and target == folder / "plots"
            _require_free(target, replace=replace or joined, is_left=target.name in left)
        new = {target.name for target in targets if not target.exists()}
        with _list_unfinished(folder, left | new) as finished:
            written = tuple(entry for name in wanted for entry in job.write(name))
            finished.update(target.name for target in targets)
    return ExportResult(series=chosen, written=written, push=push and _push_command(push, folder / "samples"))


@dataclass(frozen=True, kw_only=True)
class _ExportJob:
    """Checked settings of one export, and the functions that write its outputs."""

    store: Store
    series: tuple[str, ...]
    folder: Path
    table_formats: tuple[TableFormat, ...]
    picture_formats: tuple[FigureFormat, ...]
    figures: tuple[str, ...]
    push: str | None
    replace: bool
    write_plots: PlotWriter
    progress: ProgressSink

    def targets(self, wanted: Sequence[What]) -> list[Path]:
        """Return all files and folders that ``write`` creates."""
        files = [self._file(name, form) for name in TABLES if name in wanted for form in self.table_formats]
        return files + [self.folder / name for name in FOLDERS if name in wanted]

    def write(self, what: What) -> list[Exported]:
        """Write one kind of output."""
        match what:
            case "findings" | "verdicts":
                return self._tables(what)
            case "samples":
                return [self._in_folder(what, self._samples)]
            case "every_eval_ever":
                return [self._in_folder(what, self._every_eval_ever)]
            case "atif":
                return [self._in_folder(what, self._atif)]
            case "plots":
                names: list[str] = []
                plots = self._in_folder(what, lambda folder: self._plots(folder, names), joins=bool(self.figures))
                return [replaced(plots, files=tuple(plots.path / name for name in names if self.figures))]

    def _in_folder(self, what: FolderWhat, fill: Callable[[Path], int], *, joins: bool = False) -> Exported:
        target = self.folder / what
        with _landing(target) as landing:
            if joins and target.is_dir():
                shutil.copytree(target, landing)
            else:
                landing.mkdir()
            n = fill(landing)
            marker = {"what": what, "series": self.series, "store": self.store.path.name, "oversharp": version()}
            (landing / MARKER).write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")
        return Exported(what=what, path=target, n=n)

    def _file(self, name: TableWhat, form: TableFormat) -> Path:
        return self.folder / f"{name}{ENDINGS[form]}"

    def _tables(self, what: TableWhat) -> list[Exported]:
        read, texts = READ_TABLES[what]
        frame = read(self.store, self.series)
        if frame.empty:
            raise self._no_data(what)
        for form in self.table_formats:
            with _landing(self._file(what, form)) as landing:
                if form == "csv" or form == "parquet":
                    write_table(frame, landing, form)
                else:
                    landing.write_text(texts[form](frame), encoding="utf-8")
        return [
            Exported(what=what, path=self._file(what, form), n=n_rows(frame, what, form)) for form in self.table_formats
        ]

    def _no_data(self, what: str) -> StoreError:
        return StoreError(
            f"{self.store.path}: no {what} of {', '.join(self.series)}; run `oversharp audit` until it finishes"
        )

    def _samples(self, folder: Path) -> int:
        from oversharp.diagnostics.export.samples import write_samples

        return self._from_samples("samples", partial(write_samples, name=self.push), folder)

    def _every_eval_ever(self, folder: Path) -> int:
        from oversharp.diagnostics.export.every_eval_ever import write_evaluations

        return self._from_samples("every_eval_ever", write_evaluations, folder)

    def _atif(self, folder: Path) -> int:
        from oversharp.diagnostics.export.atif import write_trajectories

        return self._from_samples("atif", write_trajectories, folder)

    def _from_samples(self, title: str, write: Callable[..., int], folder: Path) -> int:
        from oversharp.diagnostics.export.samples import parts

        planned = {name: parts(self.store, name) for name in self.series}
        n = sum(part.n for own in planned.values() for part in own)
        with self.progress.stage(title, n) as advance:
            n_written = write(self.store, planned, folder, advance)
        if not n_written:
            raise self._no_data("graded samples")
        return n_written

    def _plots(self, folder: Path, names: list[str]) -> int:
        if findings(self.store, self.series).empty:
            raise self._no_data("findings")
        inputs = (self.store, self.series, self.picture_formats, folder, self.progress)
        names += self.write_plots(*inputs, figures=self.figures, replace=self.replace)
        return len(names) // len(self.picture_formats)


def _check_names(names: Sequence[_Name], known: Sequence[_Name], flag: str) -> tuple[_Name, ...]:
    """Return the distinct names in order.

    Raises ``ConfigError`` for an unknown name, with the nearest known name.
    """
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
            raise ConfigError(f"{flag} {name}: unknown; {hint}")
    if not names:
        raise ConfigError(f"{flag}: empty; choose from {', '.join(known)}")
    return tuple(dict.fromkeys(names))


def _choose_pushed(repository: str, wanted: tuple[What, ...]) -> tuple[What, ...]:
    """Return the outputs to write for the dataset ``repository``.

    Raises ``ConfigError`` for a name that the hub rejects or that lacks the owner. Without the owner, uploading would
    work, but the code in the dataset card could not load the dataset.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    unfit = ConfigError(f"--push {repository}: not a dataset name; use OWNER/NAME")
    try:
        validate_repo_id(repository)
    except HFValidationError:
        raise unfit from None
    if "/" not in repository:
        raise unfit
    if wanted == DEFAULT_WHAT:
        return ("samples",)
    if "samples" not in wanted:
        raise ConfigError(f"--push {repository}: only samples are pushed; add samples to --what")
    return wanted


def _push_command(repository: str, folder: Path) -> str:
    """Return the upload command of the hub's client, which asks for the token itself.

    >>> _push_command("me/grpo-samples", Path("out/my run/samples"))
    "hf upload me/grpo-samples 'out/my run/samples' . --repo-type dataset --private"
    """
    return f"hf upload {repository} {shlex.quote(str(folder))} . --repo-type dataset --private"


def _choose_formats(
    named: Sequence[Format], wanted: Sequence[What], figures: Sequence[str]
) -> tuple[tuple[TableFormat, ...], tuple[FigureFormat, ...]]:
    """Return the formats of tables and of pictures.

    LaTeX counts as both if figures are requested by name. Raises ``ConfigError`` for a format that fits none of the
    ``wanted`` outputs.
    """
    known: tuple[Format, ...] = (*TABLE_FORMATS, *PICTURE_FORMATS)
    formats = _check_names(named, known, "--format") if named else ()
    tables = tuple(form for form in TABLE_FORMATS if form in formats)
    pictures: tuple[FigureFormat, ...] = tuple(form for form in PICTURE_FORMATS if form in formats)
    if figures and "latex" in formats:
        pictures = (*pictures, "latex")
    unfit = [] if set(TABLES) & set(wanted) else [form for form in tables if form not in pictures]
    if unfit:
        named_too = " and figures named by --figure" if unfit[0] == "latex" else ""
        raise ConfigError(f"--format {unfit[0]}: only for {' and '.join(TABLES)}{named_too}; add one to --what")
    if pictures and "plots" not in wanted:
        raise ConfigError(f"--format {pictures[0]}: only for plots; add plots to --what")
    return tables or DEFAULT_TABLE_FORMATS, pictures or ("svg",)


def _choose_series(store: Store, named: Sequence[str] | None) -> tuple[str, ...]:
    """Return the requested audited series, or all.

    Raises ``StoreError`` for a series that the store lacks.
    """
    audited = [str(name) for name in store.frame("SELECT series FROM current_audits ORDER BY series")["series"]]
    if not audited:
        raise StoreError(f"{store.path}: no audit in this store; run `oversharp audit` first")
    for name in named or ():
        if name not in audited:
            raise StoreError(
                f"--series {name}: {store.path} has no audit of this series; audited series: {', '.join(audited)}"
            )
    return tuple(dict.fromkeys(named)) if named else tuple(audited)


def _left_unfinished(folder: Path) -> set[str]:
    """Return the names in ``folder`` that an interrupted export may have left."""
    try:
        names = json.loads((folder / UNFINISHED).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return set()
    return {str(name) for name in names} if isinstance(names, list) else set()


@contextmanager
def _list_unfinished(folder: Path, names: set[str]) -> Iterator[set[str]]:
    """List ``names`` in a file of ``folder``, and at the end only those that are not finished.

    The block adds finished names to the yielded set. If an error occurs before anything is written, the folder is
    removed. Raises ``StoreError`` if the folder cannot be written.
    """
    mark, is_new, finished = folder / UNFINISHED, not folder.exists(), set[str]()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark.write_text(json.dumps(sorted(names)), encoding="utf-8")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise StoreError(f"{folder}: cannot be written ({error.strerror or error}); pass another --out") from error
    try:
        yield finished
    finally:
        left = sorted(name for name in names - finished if (folder / name).exists())
        if left:
            mark.write_text(json.dumps(left), encoding="utf-8")
        else:
            mark.unlink(missing_ok=True)
        if is_new and not any(folder.iterdir()):
            folder.rmdir()


def _require_free(target: Path, *, replace: bool, is_left: bool) -> None:
    """Raise ``ConfigError`` if ``target`` must not be overwritten.

    ``is_left``: a killed export left it.
    """
    folder = target.parent
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder}: is a file; pass a directory")
    if not target.exists() or is_left:
        return
    if not replace:
        raise ConfigError(f"{target}: exists; pass --replace to overwrite it, or another --out")
    if target.is_dir() and not (target / MARKER).is_file():
        raise ConfigError(f"{target}: exists and is not from an export; remove it, or pass another --out")


@contextmanager
def _landing(target: Path) -> Iterator[Path]:
    """Yield a temporary path next to ``target``, and rename it to ``target`` at the end.

    Remove it after an error.
    """
    landing, before = target.with_name(f".{target.name}.partial"), target.with_name(f".{target.name}.before")
    try:
        _remove(landing)
        _remove(before)
        try:
            yield landing
            if target.is_dir():
                # deleting it in place could leave a folder without its marker if the process is killed
                target.replace(before)
            landing.replace(target)
        finally:
            _remove(landing)
            _remove(before)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise StoreError(f"{target}: cannot be written ({error.strerror or error}); pass another --out") from error


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
