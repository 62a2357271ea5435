"""Certificate authorities, certificates and kubeconfigs: creation, storage and renewal."""
