"""Checks whether the samples of a checkpoint are independent draws."""
