"""How often the verdict is wrong, what it misses, and whether intervals cover."""
