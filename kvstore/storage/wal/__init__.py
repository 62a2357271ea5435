"""The write-ahead log in etcd's format."""
