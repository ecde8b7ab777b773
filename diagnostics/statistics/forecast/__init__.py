"""Estimates beyond the data: pass@k for k above the number of samples. Pure."""
