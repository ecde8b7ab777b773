"""Sample rollouts with the own decoder or vLLM, optionally with the memory network of DLC."""
