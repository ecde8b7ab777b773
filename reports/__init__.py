"""Build the report: one self-contained HTML file from an audit's store.

``import oversharp.reports`` is fast: it does not import matplotlib and Jinja2 until a report is built.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

#: Text that identifies an HTML file as a report, and the number of leading bytes to search for it.
_TITLE, _HEAD_BYTES = b"<title>Over-sharpening report", 4096


def build_report(
    store_path: Path,
    out_path: Path,
    *,
    series: Sequence[str] | None = None,
    allow: bool = False,
    replace: bool = False,
    brief: bool = False,
    memory_gib: float | None = None,
) -> Path:
    """Write the HTML report of ``series`` to ``out_path``, atomically. The same store gives the same bytes.

    Args:
        series: Names of the series. Default: every audited series of the store. If series were sampled or graded
            differently, the report lists the differences and does not compare them. If you name such series here, an
            error is raised instead.
        allow: Compare series that were sampled or graded differently, and add a note.
        replace: Overwrite a file that is not a report.
        brief: Omit the sections on mechanisms and methods.
        memory_gib: Memory limit of the database queries; see ``Store.bound_memory``.

    Raises:
        ConfigError: ``out_path`` is the store, or a file that is not a report (without ``replace``).
        StoreError: the store cannot be read or has no such audit, or the named series were sampled or graded
            differently.
    """
    from oversharp.diagnostics.measures import all_measures
    from oversharp.diagnostics.store import Store
    from oversharp.reports.page import load_page
    from oversharp.reports.render import render_page, write_atomically

    require_place(store_path, out_path, replace=replace)
    with Store.open(store_path, read_only=True) as store, ExitStack() as kept:
        store.bound_memory(memory_gib)
        for name in store.frame("SELECT series FROM current_audits ORDER BY series")["series"]:
            if series is None or name in series:
                kept.enter_context(store.kept.keep(str(name), texts=False))
        page = load_page(
            store,
            tuple(all_measures().values()),
            store_name=store_path.name,
            store_link=Path(os.path.relpath(store_path.resolve(), out_path.resolve().parent)).as_posix(),
            series=tuple(series) if series else None,
            allow=allow,
            brief=brief,
        )
    return write_atomically(out_path, render_page(page))


def require_place(store_path: Path, out_path: Path, *, replace: bool = False) -> None:
    """Raise ``ConfigError`` if the report would overwrite the store, or a file that is not a report.

    With ``replace`` it may overwrite any file except the store. It may always overwrite an empty file.
    """
    from oversharp.diagnostics.records.errors import ConfigError

    if out_path.resolve() == store_path.resolve():
        raise ConfigError(f"--out {out_path}: is the store itself; choose another path for the HTML file")
    if not replace and out_path.is_file() and not _is_report(out_path):
        raise ConfigError(
            f"{out_path}: exists and is not an oversharp report; move it, choose another --out, "
            "or overwrite it with oversharp report --replace"
        )


def _is_report(path: Path) -> bool:
    """Return whether a file is empty or a report of any version."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return not head or _TITLE in head


if __name__ == "reports":  # this import would create a second copy of every class
    raise ImportError("import oversharp.reports instead of reports")
