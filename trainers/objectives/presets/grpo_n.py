"""GRPO-N: GRPO that learns from relative negatives only.

Source: *The Debate on RLVR Reasoning Capability Boundary* [B] (arXiv 2510.04028), appendix B.5; see ``negative_only``.

>>> from oversharp.trainers.objectives import parse
>>> parse("grpo_n").expression
'grpo+negative_only+clip+seq_mean_token_mean'
"""

from __future__ import annotations

from oversharp.trainers.objectives.contract import Preset

PRESET = Preset(
    title="GRPO, relative negatives only", source="arXiv 2510.04028, appendix B.5", expression="grpo+negative_only"
)
