"""Other explanations of a fall of pass@k: false accepts, and unparsed samples. Pure."""
