"""Measures of token probabilities: entropy, and change between two checkpoints."""
