"""Arrays and inputs that several measures of the gradient kernel use."""
