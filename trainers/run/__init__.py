"""Files of a run directory: checkpoints, settings, metrics, model cards; and experiment trackers."""
