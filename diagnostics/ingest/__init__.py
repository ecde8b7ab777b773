"""Import samples of other tools, from their files to a verdict."""
