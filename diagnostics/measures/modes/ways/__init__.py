"""Ways of solving a problem, read from the text of correct samples."""
