"""Clusters as values: contents are read from any source, and any cluster can start with them.

    source ──► Contents ──► a cluster in a process of its own       forks
                       ├──► a file                                  pack
                       └──► a comparison                            comparison

`sources` reads contents: from API servers, from etcd and its files, from ours, from packs and from
YAML. Nothing here writes to a source. Everything runs as the user who asks for it.
"""
