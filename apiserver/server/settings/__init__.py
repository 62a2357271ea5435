"""What the command line says: flags, how they are read, and the settings they become."""
