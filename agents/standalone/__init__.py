"""Everything in one process: `kvstack up`."""
