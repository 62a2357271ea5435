"""The running scheduler: its loop, caches, writes, command and pages."""
