"""Sample rollouts with the own decoder or vLLM, optionally against the memory network of DLC."""
