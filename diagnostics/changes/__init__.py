"""Compare two checkpoints of a series by problem: losses, gains, and the new answers."""
