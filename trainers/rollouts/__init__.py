"""Drawing rollouts: our decoder or vLLM, with DLC's memory network where there is one."""
