"""Verdict on a series from its counts. Pure: no files and no database."""
