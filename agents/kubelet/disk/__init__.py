"""Removal of mounts and directories that containers leave on disk, which may be hostile."""
