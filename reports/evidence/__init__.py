"""Data that a report reads from the store: series, problems, kernels, and comparability of series."""
