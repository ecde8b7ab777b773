"""Measures that compare checkpoints with the base sampled at a lower temperature, or sharpened from its samples."""
