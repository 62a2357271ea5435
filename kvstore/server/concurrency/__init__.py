"""Locks and elections: services built from leases, transactions and watches."""
