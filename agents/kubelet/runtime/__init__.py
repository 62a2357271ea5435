"""Container runtimes: the protocol, processes of the node, and container engines."""
