"""What was measured: figures, where they were taken, files, tables and drawings."""
