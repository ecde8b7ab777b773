"""``drop``: remove series from a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import check_arguments
from oversharp.diagnostics.records.names import as_path_list, store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.store.dropping.drop import DropResult


@check_arguments
def drop(store: Path | str, series: str | Sequence[str], *, dry_run: bool = False, replace: bool = False) -> DropResult:
    """Remove series from a store, and keep a copy of the old store next to it.

    Removes their samples, grades, scores, findings and token files. Keeps everything that a remaining series shares
    with them: the base, its samples, kernels. Findings and verdicts of the others stay as they are. The checkpoint to
    ship is chosen again if removed series were among the candidates, and the report is written again.

    The copy is audit.before-drop.duckdb, with its token files in audit.before-drop.tokens. Remove both once you have
    checked the new store; to undo, move both back. If the command is interrupted, the store is unchanged.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    series
        Names of the series to remove. At least one series must remain.
    dry_run
        Print what would be removed; change nothing.
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

    path, names = store_file(store), [str(name) for name in as_path_list(series)]
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
