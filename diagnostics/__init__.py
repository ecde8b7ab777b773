"""The audit of RLVR checkpoints for over-sharpening, a room per concern. People import ``oversharp``."""

if __name__ == "diagnostics":  # a second copy of every class
    raise ImportError("import oversharp.diagnostics instead of diagnostics")
