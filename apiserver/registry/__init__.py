"""The registry: objects in the store, and the watch cache of all of them in memory.

    Registry ── WatchCache ── Collection ── Record         what everybody reads
       ├─ Reads ── History                           get and list, at any resourceVersion
       ├─ Writes ── Leases                           one transaction a write
       └─ View, Live                                 what policy reads and writes

It handles keys, bytes and revisions, and knows nothing of verbs, users or HTTP.
"""
