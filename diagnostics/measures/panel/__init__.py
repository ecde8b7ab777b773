"""Log-probabilities of fixed responses under every checkpoint."""
