"""Estimators, intervals and tests: pure functions of counts.

``pass_at_k`` and ``entropy`` are estimators, ``stopping`` has the rules that determine the number of samples,
``intervals`` gives intervals of means over problems, and ``keys`` tests whether pass@k fell. For a verdict,
``crossing`` gives the k from which pass@k is lower and the step at which it began to fall, ``band`` the first
checkpoint with a significant change, ``problem_changes`` the problems that changed, ``confirmation`` those that changed
on fresh samples too, and ``comparison`` whether two runs differ. Each function is imported from its own module.
"""
