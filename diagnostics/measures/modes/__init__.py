"""Measures of modes, answers, strategies and ways of solving, and which of them became rare."""
