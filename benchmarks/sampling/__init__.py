"""How many samples an audit needs."""
