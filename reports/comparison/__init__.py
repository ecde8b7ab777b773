"""Comparison of series: pairs of series, and objectives over training seeds."""
