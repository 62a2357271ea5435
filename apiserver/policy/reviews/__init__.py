"""Reviews of users and their permissions, answered and never stored."""
