"""Recompute the toy worlds and closed forms of the papers: which claims hold, and when.

``python -m benchmarks.papers`` from the repository's root. One file of ``families`` is one family of claims.
"""
