"""Build figure and table records from the findings of a measure."""
