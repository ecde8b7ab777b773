"""Aggregations: weight token losses into one number."""
