"""Measures of the health of samples and scores: truncation, parsing, grading, lengths, numeric noise."""
