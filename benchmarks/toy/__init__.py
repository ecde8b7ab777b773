"""The papers' softmax worlds, trained over many seeds at once on a CPU.

    run(cat_world(), ToyConfig(estimator="raw", group_size=8)) -> ToyRun

``worlds`` has the three worlds, ``config`` the settings, ``estimators`` the advantages, ``optimizers`` the update
rules, ``simulation`` the loop, ``collapse`` the share of seeds that collapsed on one label. The tensors are small: one
CPU thread is fastest.
"""

from __future__ import annotations

from benchmarks.toy.collapse import Share, ShareByStep, collapsed_share, first_collapsed_step, wilson
from benchmarks.toy.config import ToyConfig
from benchmarks.toy.simulation import ToyRun, run
from benchmarks.toy.worlds import World, bandit_world, cat_world, tabular_world

__all__ = [
    "Share",
    "ShareByStep",
    "ToyConfig",
    "ToyRun",
    "World",
    "bandit_world",
    "cat_world",
    "collapsed_share",
    "first_collapsed_step",
    "run",
    "tabular_world",
    "wilson",
]
