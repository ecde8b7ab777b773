"""Parts that change rewards before anything compares them."""
