"""Closed forms of the papers that only benchmarks check; those of the product are in ``oversharp.diagnostics.theory``.

====================  ==========================================================================
``sampling_bias``     [A] 2.2: optimal policy, objective of a batch, geometric step, binary advantages
``coupling_bounds``   [A] Theorem 2.4 and Corollary 2.2: when the bounds are proved; Appendix G
``calibration``       [A] 3: inverse-probability and inverse-success advantages, DLC's distribution
``softmax_dynamics``  [B] Lemma 1, Theorem 1, Remark 2, GRPO-N
``bandit``            [C] Lemma D.1
====================  ==========================================================================

[A] arXiv 2601.15609, [B] arXiv 2510.04028, [C] The Reasoning Boundary Paradox (OpenReview).
"""
