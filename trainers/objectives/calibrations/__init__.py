"""Calibrations: change advantages, or remove samples from the batch."""
