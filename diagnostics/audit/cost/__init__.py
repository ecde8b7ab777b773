"""What an audit will cost before it is begun: work per stage, measured rates of a CPU, data sheets of GPUs."""
