"""Pod Security Standards: privileges of pods on their host, in three levels."""
