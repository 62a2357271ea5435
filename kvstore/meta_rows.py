"""Keys of rows in the meta and cluster tables that several packages use; they are etcd's."""

from typing import Final

CONSISTENT_INDEX_KEY: Final = b"consistent_index"  # u64BE: the last applied entry
TERM_KEY: Final = b"term"  # u64BE: of that entry
CONF_STATE_KEY: Final = b"confState"  # JSON: raft's configuration at that entry
STORAGE_VERSION_KEY: Final = b"storageVersion"  # text: 3.7.0; not there before 3.6
CLUSTER_VERSION_KEY: Final = b"clusterVersion"  # text, in the cluster table
