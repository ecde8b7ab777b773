"""Estimators and intervals: pure functions of counts, no database, no engine.

``pass_at_k`` and ``entropy`` estimate, ``intervals`` says how far to trust a mean over problems, ``matched`` reads
a run off at a given accuracy, so that two runs can be compared there. Each function is imported from its own module.
"""
