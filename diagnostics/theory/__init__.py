"""Closed-form results of the three papers, with errors corrected.

The functions are pure and take small float64 arrays. If a paper prints a wrong formula, the function computes the
corrected one, and the printed one with ``as_printed=True``. Its docstring explains the correction. Invalid input raises
``ValueError``.

========================  ==========================================================================================
``sampling_bias``         [A] 2.2: the batch-optimal policy, Z′(q), its two lower bounds, Δ_π
``coupling``              [A] 2.3: targets, α = K⁺ y, k^T K⁺ y, λ and ρ, cosine kernel, effective rank; [C] Proposition
                          3.1 and Eq 10: influence of a step, advantages of a group
``coupling_bounds``       [A] Theorem 2.4 and Corollary 2.2
``assumptions``           [A] Assumptions 2.1 to 2.3 and further conditions of the proof, on a real kernel
========================  ==========================================================================================

Closed forms that only benchmarks use are in ``benchmarks/papers/theory``.

[A] arXiv 2601.15609, [B] arXiv 2510.04028, [C] The Reasoning Boundary Paradox (OpenReview). The unbiased pass@k of [B]
4.1 is ``oversharp.diagnostics.statistics.pass_at_k``, the answer entropy of [B] C.5
``oversharp.diagnostics.statistics.entropy``.
"""
