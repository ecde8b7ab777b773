"""The toy worlds and closed forms of the papers, run again: which claims hold, which fail, and when.

``python -m benchmarks.papers`` from the repository's root. One file of ``families`` is one family of claims.
"""
