"""User interface: the command line, the Python functions, the demo and comparisons."""
