"""Removes series from a store."""
