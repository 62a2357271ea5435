"""The proxy by nftables: tables `ip kube-proxy` and `ip6 kube-proxy`, laid out as kube-proxy's.

`layout` is what every table has, `port_rules` what one port of a Service adds to it, `ruleset` what
is in the table and the transaction that changes it. `rules` and `transaction` are values; `program`
runs `nft` with their text, `messages` and `expressions` are what the kernel is sent.
"""
