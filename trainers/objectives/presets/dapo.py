"""DAPO: GRPO with clip-higher, dynamic sampling and the mean over tokens.

The fourth technique, overlong shaping, depends on the run's ``--max-tokens``, so it is not included. To use it, add
``overlong:length=N`` or ``overlong_filter``. The dual clip at 3 is not in the paper, but it is a default of verl, which
the authors used. It changes the loss if a ratio exceeds 3 and A < 0. ``dapo:dual=0`` turns it off.

Source: DAPO (arXiv 2503.14476), Eq 8.

>>> from oversharp.trainers.objectives import parse
>>> parse("dapo+overlong:length=512").expression
'grpo+dynamic_sampling+clip:high=0.28,dual=3.0+token_mean+overlong:length=512'
"""

from __future__ import annotations

from oversharp.trainers.objectives.contract import Preset

PRESET = Preset(
    title="Decoupled Clip and Dynamic Sampling Policy Optimization",
    source="arXiv 2503.14476, Eq 8",
    expression="grpo+dynamic_sampling+clip:low=0.2,high=0.28,dual=3+token_mean",
)
