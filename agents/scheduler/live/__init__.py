"""The running scheduler: its loop, what feeds it, what it writes, its command and its pages."""
