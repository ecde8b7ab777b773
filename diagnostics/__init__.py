"""The audit of RLVR checkpoints for over-sharpening, a room per concern. People import ``oversharp``."""
