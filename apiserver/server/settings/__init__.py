"""The command line: flags, how they are parsed, and the settings they become."""
