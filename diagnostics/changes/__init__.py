"""Two checkpoints of a series, problem by problem: what was lost and gained between them, and what is said instead."""
