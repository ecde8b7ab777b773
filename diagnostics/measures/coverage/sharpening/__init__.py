"""Measures that compare checkpoints with a sharpened base.

The base is sampled at a lower temperature, or sharpened from its samples.
"""
