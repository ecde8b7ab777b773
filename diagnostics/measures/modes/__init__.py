"""Modes: the different correct answers, strategies and ways of solving, and which of them became rare."""
