"""etcd's peer protocol: links between members, both ends of them."""
