"""Figure and table records of the findings of a measure."""
