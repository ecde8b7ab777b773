"""Compare two checkpoints of a series problem by problem.

Losses, gains, and what is answered instead.
"""
