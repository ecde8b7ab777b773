"""Cost of an audit before it starts: work per stage, measured rates of a CPU, data sheets of GPUs."""
