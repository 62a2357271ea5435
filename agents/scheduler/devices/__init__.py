"""Which devices claims of pods get on a node (structured parameters). Pure."""
