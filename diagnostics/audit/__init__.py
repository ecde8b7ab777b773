"""The audit of a series in stages, and the uses of a finished audit: plan, confirmation, regrading, shipping."""
