"""Parts that weigh the losses of tokens into one number."""
