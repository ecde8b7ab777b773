"""Output of the commands: rows of a label and a value, tables, JSON."""
