"""Parts that add a further loss to each token."""
