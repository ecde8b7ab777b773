"""Functions of the API, and commands that are no functions of it."""
