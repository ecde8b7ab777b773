"""The policy as a step computes it: log-probabilities with gradient, layouts of a pass, memory."""
