"""etcd's database file: read and written."""
