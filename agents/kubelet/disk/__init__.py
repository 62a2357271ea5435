"""What containers leave on the disk of a node: mounts and directories, which may be hostile."""
