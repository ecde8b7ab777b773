"""Measures of the log-probabilities of fixed responses (the panel) under every checkpoint."""
