"""Graph mode (npugraph_ex) of vLLM-Ascend 0.13.0: one switch, the sizes that go with it, and what contradicts it."""
