"""Speed and memory, measured alternately with a peer."""
