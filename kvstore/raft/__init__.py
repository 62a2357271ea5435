"""The raft algorithm: no clock, no disk, no network, nothing of the project."""
