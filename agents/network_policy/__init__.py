"""NetworkPolicies, on the node whose pods they are about: which packets pass, by nftables.

    policies ──┐
    ranges ────┼─► cluster ──► nftables ──► enforcer      a kubelet asks it before a pod starts
    pods ──────┘      pure        pure        input and output

`policies` reads a NetworkPolicy, `ranges` its blocks of addresses, `pods` what of a pod matters.
`cluster` keeps which pod is isolated by which policies and which addresses each rule means; what a
change costs depends on what it touches. `nftables` writes the differences, `enforcer` follows the
API. Where pods have no addresses of their own nothing is enforced.
"""
