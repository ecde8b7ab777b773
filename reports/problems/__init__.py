"""Sections on single problems: lost and gained problems, with responses."""
