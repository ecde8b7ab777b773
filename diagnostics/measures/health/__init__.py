"""Health of samples and scores: truncation, parsing, grading, lengths and numeric noise."""
