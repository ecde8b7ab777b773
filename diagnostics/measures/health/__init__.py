"""Measures of the health of samples and scores, such as truncation and parse failures."""
