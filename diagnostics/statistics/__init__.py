"""Estimators and intervals: pure functions of counts, no database, no engine.

``pass_at_k`` and ``entropy`` estimate, ``intervals`` says how far to trust a mean over problems, ``matched`` compares
two runs where they are equally accurate. Each function is imported from its own module.
"""
