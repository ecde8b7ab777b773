"""Measure that decomposes a change of pass@k into causes."""
