"""Coverage: what share of the problems a checkpoint solves within k samples."""
