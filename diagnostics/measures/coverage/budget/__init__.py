"""Decomposition of a change of pass@k into causes."""
