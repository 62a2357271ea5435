"""etcd's peer protocol: both ends of the links between members."""
