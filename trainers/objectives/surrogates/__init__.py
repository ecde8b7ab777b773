"""Surrogates: compute the loss of each token."""
