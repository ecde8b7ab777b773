"""SELF: GRPO only where the greedy response fails, and forward KL to the reference on every prompt.

Source: *The Reasoning Boundary Paradox* [C], Eq 9; see ``greedy_filter`` and ``forward_kl``.

>>> from oversharp.trainers.objectives import parse
>>> parse("self:beta=0.001").expression
'greedy_filter+forward_kl:beta=0.001+grpo+clip+seq_mean_token_mean'
"""

from __future__ import annotations

from oversharp.trainers.objectives.contract import Preset

PRESET = Preset(
    title="Selective Examples with Low-likelihood and Forward-KL",
    source="The Reasoning Boundary Paradox, Eq 9",
    expression="greedy_filter+forward_kl",
)
