"""Forward passes of the policy: log-probabilities with gradient, input layouts, KV caches, device memory."""
