"""Distributions of single tokens: their entropy, and how far they moved between two checkpoints."""
