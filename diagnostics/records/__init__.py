"""The records and errors that every room knows."""
