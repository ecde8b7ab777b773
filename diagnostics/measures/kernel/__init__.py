"""Measures of the gradient kernel: how a training step on one response changes the others."""
