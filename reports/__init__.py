"""The report: one self-contained HTML file made from the audit's store, without network and without clocks.

``import oversharp.reports`` is light; matplotlib, seaborn and Jinja2 are loaded when a report is built.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

#: How the head of every report goes on, within so many bytes.
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
    """Write the HTML report of ``series`` (default: every audited series of the store) to ``out_path``.

    Series that were sampled or graded differently are not compared, and the report says what differs; naming them in
    ``series`` is an error then. With ``allow`` they are compared, and the report says that too.
    ``brief`` leaves out the sections on mechanisms and methods. Queries take ``memory_gib`` at most, see
    ``Store.bound_memory``.
    The same store gives the same bytes. The file appears whole or not at all.
    Raises ``ConfigError`` where ``out_path`` is the store, or without ``replace`` a file that is no report, and
    :class:`~oversharp.diagnostics.records.errors.StoreError` if the store cannot be read, holds no such audit, or the
    named series differ in more than their training.
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
                kept.enter_context(store.kept.of(str(name), texts=False))
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
    """Raise ``ConfigError`` where the report would take the place of the store, or of a file that is no report of ours.

    With ``replace`` it may take that of any file but the store; an empty one it always may.
    """
    from oversharp.diagnostics.records.errors import ConfigError

    if out_path.resolve() == store_path.resolve():
        raise ConfigError(f"--out {out_path}: is the store itself, which the report would replace; name an HTML file")
    if not replace and out_path.is_file() and not _is_report(out_path):
        raise ConfigError(
            f"{out_path}: exists and is no report of oversharp, which would replace it; move it, or name another --out "
            "(oversharp report --replace writes over it)"
        )


def _is_report(path: Path) -> bool:
    """Whether a file is empty or begins as reports do, of whatever version."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return not head or _TITLE in head


if __name__ == "reports":  # a second copy of every class
    raise ImportError("import oversharp.reports instead of reports")
