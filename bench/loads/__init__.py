"""What drives a server, and counts: each is a program of its own, or a part of one."""
