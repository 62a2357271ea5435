"""What quotas count: which objects are in their scopes, and what each uses."""
