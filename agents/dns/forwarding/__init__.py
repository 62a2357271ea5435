"""Names outside of the cluster: `forwarder` asks the node's resolvers or stub domains, and caches.

`exchange` is one question to one resolver, `answer_cache` what was answered, `node_resolvers` the
resolv.conf of the node.
"""
