"""IAC as printed in [A]: S+ by the sign of the advantage, and KL to the reference.

    S+ = samples with A > 0          A~_i = A_i * (G - |S+|)^alpha  on S+          loss + beta * KL(pi || pi_ref)

``iac`` alone defines S+ by the verifier and has no KL. [A] specifies neither beta nor the estimator of the KL; here it
is ``k2``, which has the gradient of the KL, with verl's beta of 0.001. alpha = 1 is the best value in its Table 5. To
change the KL, write ``iac_paper+kl:kind=k2,beta=0.01``.

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
