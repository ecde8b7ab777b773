"""Compact reference trainers for reinforcement learning with verifiable rewards.

Nothing heavy is imported here. ``oversharp.trainers.config`` describes a run, ``oversharp.trainers.loop.train`` does
it, ``oversharp.trainers.sft.train_base`` trains the base model of the built-in task, ``oversharp.trainers.objectives``
holds one file per estimator.
"""

if __name__ == "trainers":  # a second copy of every class
    raise ImportError("import oversharp.trainers instead of trainers")
