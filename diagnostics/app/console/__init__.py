"""What the commands print: rows of a label and a value, tables, JSON."""
