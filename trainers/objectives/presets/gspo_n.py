"""GSPO-N: GSPO that learns from relative negatives only.

Source: *The Debate on RLVR Reasoning Capability Boundary* [B] (arXiv 2510.04028), section 4.1 and appendix
B.5; see ``negative_only``.

>>> from oversharp.trainers.objectives import parse
>>> parse("gspo_n").expression
'grpo+negative_only+gspo+seq_mean_token_mean'
"""

from __future__ import annotations

from oversharp.trainers.objectives.contract import Preset

PRESET = Preset(
    title="GSPO, relative negatives only",
    source="arXiv 2510.04028, section 4.1 and appendix B.5",
    expression="grpo+negative_only+gspo",
)
