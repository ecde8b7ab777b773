"""Remove series from a store."""
