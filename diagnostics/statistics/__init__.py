"""Estimators, intervals and tests: pure functions of counts, no database, no engine.

``pass_at_k`` and ``entropy`` estimate, ``intervals`` says how far to trust a mean over problems. ``keys`` tests whether
pass@k fell. Around a verdict, ``crossing`` says from which k on, ``band`` at which checkpoint it is sure, ``onset``
when it began, ``problem_changes`` which problems changed, ``confirmation`` which of them did on fresh samples,
``comparison`` whether two runs differ. Each function is imported from its own module.
"""
