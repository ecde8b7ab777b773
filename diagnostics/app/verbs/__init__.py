"""Functions of the API, one file per question."""
