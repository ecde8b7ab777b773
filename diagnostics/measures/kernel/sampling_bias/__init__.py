"""Measures of the sampling bias of one batch: the partition function Z′ of [A] 2.2.

[A] is arXiv 2601.15609.
"""
