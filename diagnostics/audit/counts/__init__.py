"""Counts of a series and of its checkpoints from the store, for the verdict."""
