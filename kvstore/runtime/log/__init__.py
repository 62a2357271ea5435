"""The operator's log: one JSON object a line, rotated files, the systemd journal."""
