"""Penalties: add a loss to each token."""
