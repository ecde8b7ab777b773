"""The run directory: checkpoints, settings, metrics, model cards and trackers."""
