"""What runs containers: the protocol, processes of the node, and container engines."""
