"""The policy's forward passes: log-probabilities with gradient, layouts, caches, and the device memory they need."""
