"""The verb ``drop`` of the API: removes series from a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import checked_arguments
from oversharp.diagnostics.records.names import listed, store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.store.dropping.drop import DropResult


@checked_arguments
def drop(store: Path | str, series: str | Sequence[str], *, dry_run: bool = False, replace: bool = False) -> DropResult:
    """Remove series from a store, and keep the store as it was next to it.

    Their samples, grades, scores and findings are removed, and the token files of these series alone. Everything that a
    remaining series shares with them stays: the base, its samples, kernels. Findings and verdicts of the others are not
    computed again; only the checkpoint to ship is, where it was chosen among the removed ones too, and the report.

    The old store stays as audit.before-drop.duckdb, with its token files in audit.before-drop.tokens. Remove both when
    the rest is as expected; to undo, move both back. Killed or stopped, the store is as it was.

    Parameters
    ----------
    store
        The audit.duckdb file, or the directory that holds it.
    series
        Names of the series to remove. One series must be left.
    dry_run
        Count what would be removed; change nothing.
    replace
        Remove the copy of an earlier drop.

    Examples
    --------
    ::

        print(oversharp.drop("audit/audit.duckdb", "grpo", dry_run=True).samples)
    """
    from oversharp.diagnostics.app.report import require_report_place, write_report
    from oversharp.diagnostics.audit.shipping import settle_left
    from oversharp.diagnostics.store import Store
    from oversharp.diagnostics.store.dropping.drop import drop_preview, without_series

    path, names = store_file(store), [str(name) for name in listed(series)]
    if dry_run:
        return drop_preview(path, names)
    require_report_place(path)
    with without_series(path, names, replace=replace) as (made, result):
        settle_left(made)
    with Store.open(path, read_only=True) as opened:
        is_audited = not opened.frame("FROM current_audits LIMIT 1").empty
    if is_audited:  # imported samples may wait for those of the base
        write_report(path, path.parent / "report.html")
    return result
