"""Arrays and inputs that the measures of the gradient kernel share."""
