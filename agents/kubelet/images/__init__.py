"""Images of a node: `image_manager` gets those of containers, `image_garbage` removes others."""
