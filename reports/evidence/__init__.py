"""What a report reads from the store: series, problems, kernels, and which of them may be compared."""
