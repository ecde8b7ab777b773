"""Calibrations: change advantages, or remove samples from the loss and its divisor."""
