"""Distributions of single tokens: entropy, and change between two checkpoints."""
