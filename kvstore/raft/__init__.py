"""The Raft algorithm without IO; it imports nothing of the project, RawNode is its interface."""
