"""``docs/views.md``: what users may query; ``python -m oversharp.diagnostics.store.views_page`` writes it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.views import documented_views, meaning_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "views.md"

INTRODUCTION = """# Views

What `oversharp sql STORE "SELECT …"` and `oversharp.open_store(path).frame("SELECT …")` can rely on. Names, types and
meanings below stay as they are from version to version; new columns come at the end. Other tables of the store are
its own and may change. [queries.md](queries.md) has examples.

The views show the latest audit of every series. `token_logps` and its kin lie in Parquet files beside the store, in the
folder `audit.tokens`: keep the two together. NULL is unknown, never 0.

This page is generated from the comments in `diagnostics/store/views.sql` and `tables.sql` by
`python -m oversharp.diagnostics.store.views_page`.
"""


def page() -> str:
    """Return the whole page as Markdown; types are those of a new, empty store."""
    columns = store_columns()
    views = documented_views().values()
    rows_of = {view.name: f"{view.row} (table)" if view.is_table else view.row for view in views}
    paragraphs = [INTRODUCTION.rstrip(), "\n".join(f"- [`{name}`](#{name}): {row}" for name, row in rows_of.items())]
    for name, one_row in rows_of.items():
        rows = [
            f"| `{row.column}` | {row.type} | {meaning.unit} | {meaning.text} |"
            for row in columns[columns["name"] == name].itertuples()
            if (meaning := meaning_of(name, str(row.column)))
        ]
        table = "\n".join(["| column | type | unit | meaning |", "|---|---|---|---|", *rows])
        paragraphs += [f"## {name}", f"One row: {one_row}.", table]
    return "\n\n".join(paragraphs) + "\n"


def store_columns() -> pd.DataFrame:
    """``name, column, type`` of every relation of a new store."""
    with TemporaryDirectory() as folder, Store.open(Path(folder) / "audit.duckdb") as store:
        return store.columns()


def write() -> None:
    """Write the page to its place in the source tree."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write()
