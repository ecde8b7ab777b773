"""The report: one self-contained HTML file made from the audit's store, without network and without clocks.

``import reports`` is light; matplotlib, seaborn and Jinja2 are loaded when a report is built.
"""

from __future__ import annotations

from pathlib import Path


def build_report(store_path: Path, out_path: Path, *, series: tuple[str, ...] | None = None) -> Path:
    """Write the HTML report of ``series`` (default: every audited series of the store) to ``out_path``.

    The same store gives the same bytes. The file appears whole or not at all.
    Raises :class:`~diagnostics.errors.StoreError` if the store cannot be read or holds no such audit.
    """
    from diagnostics.measures import all_measures
    from diagnostics.store import Store
    from reports.page import load_page
    from reports.render import render_page, write_atomically

    with Store.open(store_path, read_only=True) as store:
        page = load_page(store, tuple(all_measures().values()), store_name=store_path.name, series=series)
    return write_atomically(out_path, render_page(page))
