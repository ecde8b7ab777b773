"""Trained checkpoints against the base sampled at lower temperatures."""
