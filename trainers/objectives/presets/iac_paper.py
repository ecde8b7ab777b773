"""IAC as printed in [A]: the sign of the advantage defines S+, and the loss has a KL to the reference.

    S+ = samples with A > 0          A~_i = A_i * (G - |S+|)^alpha  on S+          loss + beta * KL(pi || pi_ref)

In ``iac`` alone, the verifier defines S+, and there is no KL. [A] specifies neither beta nor the estimator of the KL.
Here the estimator is ``k2``, which has the gradient of the KL, and beta is 0.001 as in verl. alpha = 1 is the best
value in Table 5 of [A]. To change the KL, write ``iac_paper+kl:kind=k2,beta=0.01``.

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
