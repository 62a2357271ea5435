"""Reviews: questions about users and what they may do, answered and never stored."""
