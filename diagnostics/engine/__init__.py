"""Who samples and scores for an audit: this process, or the workers of a Ray cluster."""
