"""Who a node is: its certificates, how it gets them and renews them."""
