"""Aggregations: combine the losses of all tokens into one number."""
