"""Compare two checkpoints of a series problem by problem: losses, gains, and new answers."""
