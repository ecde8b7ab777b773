"""The problems of an audit one by one: which were lost and gained, and their responses."""
