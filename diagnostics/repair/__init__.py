"""Write weights between the base and a checkpoint as a series that can be audited."""
