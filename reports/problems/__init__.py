"""Single problems of an audit: lost and gained ones, with their responses."""
