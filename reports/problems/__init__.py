"""Sections on single problems: lost and gained ones, with their responses."""
