"""Modes: correct answers, strategies and ways of solving, and which became rare."""
