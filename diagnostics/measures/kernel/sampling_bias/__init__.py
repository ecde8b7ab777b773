"""Measures of the sampling bias of one batch: the partition function Z′ of [A] (arXiv 2601.15609), 2.2."""
