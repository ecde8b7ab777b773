"""The DuckDB file of an audit: tables, views, writers and queries."""

from oversharp.diagnostics.store.store import Store as Store

__all__ = ["Store"]
