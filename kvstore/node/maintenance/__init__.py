"""Work on the state that no request waits for: commits, compaction, quota."""
