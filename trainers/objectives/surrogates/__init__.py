"""Parts that give each token its loss."""
