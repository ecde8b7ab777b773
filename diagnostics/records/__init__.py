"""Records and errors that every room uses."""
