"""The proxy by iptables, for machines without nft: chains and rules as kube-proxy's.

`layout` is what the tables have whatever the Services are, `port_rules` what one port adds to them,
`ruleset` what is in them and the text for `iptables-restore` that changes it, `removal` the text
that takes all of it away; `program` runs the programs.
"""
