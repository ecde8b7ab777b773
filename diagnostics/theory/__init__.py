"""The closed forms of the three papers, corrected: pure functions of small float64 arrays.

Where print and truth differ, a function computes the truth, and the printed form with ``as_printed=True``; its
docstring says what was corrected. Invalid input raises ``ValueError``.

========================  ==========================================================================================
``sampling_bias``         [A] 2.2: optimal and batch-optimal policy, Z(q), Z′(q), its two lower bounds, Δ_π
``coupling``              [A] 2.3: targets, α = K⁺ y, k^T K⁺ y, λ and ρ, cosine kernel, effective rank
``coupling_bounds``       [A] Theorem 2.4, Corollary 2.2, Appendix G, and when the bounds are proved
``assumptions``           [A] Assumptions 2.1 to 2.3 and what the proof needs besides, on a real kernel
``influence``             [C] Proposition 3.1, Definition 4.1, Eq 4 to 10, Eq 16
========================  ==========================================================================================

Forms that only benchmarks check are in ``benchmarks/papers/theory``.

[A] arXiv 2601.15609, [B] arXiv 2510.04028, [C] The Reasoning Boundary Paradox (OpenReview). The unbiased pass@k of
[B] 4.1 is ``oversharp.diagnostics.statistics.pass_at_k``, the answer entropy of [B] C.5
``oversharp.diagnostics.statistics.entropy``.
"""
