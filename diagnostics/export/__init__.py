"""Export the contents of a store.

Each module writes one kind of output; ``export`` selects and writes them.
"""
