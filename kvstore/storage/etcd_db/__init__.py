"""etcd's database file (bbolt): read and written."""
