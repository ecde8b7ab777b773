"""Sample rollouts with the built-in decoder or vLLM, optionally with the memory network of DLC."""
