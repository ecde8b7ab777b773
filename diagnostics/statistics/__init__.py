"""Estimators, intervals and tests: pure functions of counts.

``pass_at_k`` and ``entropy`` are estimators, ``intervals`` gives intervals of means over problems, and ``keys`` tests
whether pass@k fell. For a verdict, ``crossing`` gives the k from which pass@k is lower, ``band`` the first checkpoint
with a significant change, ``onset`` the step at which it began, ``problem_changes`` the problems that changed,
``confirmation`` those that changed on fresh samples too, and ``comparison`` whether two runs differ. Each function is
imported from its own module.
"""
