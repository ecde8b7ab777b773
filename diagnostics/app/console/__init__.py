"""Terminal and JSON output of the commands."""
