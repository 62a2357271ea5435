"""The identity of a node: its certificates, how it gets and renews them."""
