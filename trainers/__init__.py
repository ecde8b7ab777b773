"""Compact reference trainers for reinforcement learning with verifiable rewards.

Nothing heavy is imported here. ``trainers.config`` describes a run, ``trainers.loop.train`` executes it,
``trainers.sft.train_base`` trains the base model of the built-in task, ``trainers.objectives`` holds one file per
estimator.
"""
