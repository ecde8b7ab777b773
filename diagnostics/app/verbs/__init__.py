"""Functions of the API, and commands without a function in the API."""
