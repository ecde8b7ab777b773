"""Sampler of trajectories: a chat server generates the turns, and an environment of the user runs the tool calls."""
