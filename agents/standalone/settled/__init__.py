"""Whether a cluster is settled, over the network: clients that may act, and requests that wait."""
