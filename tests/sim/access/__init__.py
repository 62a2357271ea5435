"""Users, roles and passwords of a simulated cluster: who asks, and who may what."""
