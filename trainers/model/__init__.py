"""Forward passes of the policy: log-probabilities with gradient, layouts, KV caches, and device memory."""
