"""IAC as [A] prints it: S+ by the sign of the advantage, and KL to the reference.

    S+ = samples with A > 0          A~_i = A_i * (G - |S+|)^alpha  on S+          loss + beta * KL(pi || pi_ref)

``iac`` alone takes S+ by the verifier and has no KL. [A] names neither beta nor an estimator of the KL, whose gradient
is that of ``k2`` among those of a loss; beta is verl's 0.001 here. alpha = 1 is the best of its Table 5. Settings by
their names: ``iac_paper+kl:kind=k2,beta=0.01``.

Source: *When Sharpening Becomes Collapse* [A] (arXiv 2601.15609), Eq 1 and Algorithm 1, lines 11 to 20.

>>> from oversharp.trainers.objectives import parse
>>> parse("iac_paper").expression
'grpo+iac:s_plus=positive+kl:kind=k2+clip+seq_mean_token_mean'
"""

from __future__ import annotations

from oversharp.trainers.objectives.contract import Preset

PRESET = Preset(
    title="Inverse-success Advantage Calibration, as printed",
    source="arXiv 2601.15609, Eq 1 and Algorithm 1",
    expression="grpo+iac:alpha=1,s_plus=positive+kl:kind=k2,beta=0.001",
)
