"""The operator's log: lines of JSON, rotated files, the journal."""
