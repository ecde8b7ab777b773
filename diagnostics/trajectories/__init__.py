"""Trajectories: responses of several turns, with tool calls and the tools' observations."""
