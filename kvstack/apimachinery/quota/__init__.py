"""The rules of quotas: the objects in a scope, and the usage of each object."""
