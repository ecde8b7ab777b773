"""Outputs of a store, one file per kind; ``export`` selects and writes them."""
