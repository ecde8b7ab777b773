"""Whole objectives of papers, as expressions of parts."""
