"""The operator's log: one JSON object a line, files that rotate, the systemd journal."""
