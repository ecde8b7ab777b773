"""The one DuckDB file of an audit: tables, views, and everything that is written to it or asked of it."""

from oversharp.diagnostics.store.store import Store as Store

__all__ = ["Store"]
