"""Pod Security Standards: what pods may ask of their host, in three levels."""
