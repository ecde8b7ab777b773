"""The audit of a series, and commands on a finished audit: plan, confirm, regrade, ship."""
