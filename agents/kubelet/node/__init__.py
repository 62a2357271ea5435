"""A real node in the API: its object (`node`), its status (`node_status`) and its `leases`."""
