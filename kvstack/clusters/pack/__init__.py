"""Contents in one file: a zip of msgpack segments with checksums and a readable `about.json`."""
