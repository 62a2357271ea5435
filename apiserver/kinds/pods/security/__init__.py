"""The rules of security contexts, and of what operating systems refuse of them."""
