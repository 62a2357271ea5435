"""Names of others: `forwarder` asks resolvers of the node or of stub domains, and keeps answers.

`exchange` is one question to one resolver, `answer_cache` what was answered, `node_resolvers` the
resolv.conf of the node.
"""
