"""Whether a cluster is settled, for those who ask over the network: who else may act, who waits."""
