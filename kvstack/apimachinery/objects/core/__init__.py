"""Facts of pods and nodes, each once, for all that run on or serve them."""
