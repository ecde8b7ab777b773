"""Estimators, intervals and tests: pure functions of counts, no database, no engine.

``pass_at_k`` and ``entropy`` estimate, ``intervals`` says how far to trust a mean over problems, ``matched`` reads
a run off at a given accuracy, so that two runs can be compared there. ``keys`` tests whether pass@k fell, and ``rule``
turns counts into a label. Around a verdict, ``crossing`` says from which k on, ``band`` at which checkpoint it is sure,
``onset`` when it began, ``confirmation`` which problems are lost, ``comparison`` whether two runs differ. Each function
is imported from its own module.
"""
