"""Measures of coverage: the share of problems that a checkpoint solves within k samples."""
