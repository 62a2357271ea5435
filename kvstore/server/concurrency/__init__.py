"""Locks and elections: services made of leases, transactions and watches, nothing else."""
