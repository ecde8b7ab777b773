"""Compact reference trainers for reinforcement learning with verifiable rewards.

Importing this package does not import torch. ``oversharp.trainers.config`` defines the settings of a run,
``oversharp.trainers.loop.train`` runs it, ``oversharp.trainers.sft.train_base`` trains the base model of the built-in
task, and ``oversharp.trainers.objectives`` has one file per part of an objective.
"""

if __name__ == "trainers":  # this import would create a second copy of every class
    raise ImportError("import oversharp.trainers instead of trainers")
