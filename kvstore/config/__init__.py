"""The settings: etcd's flags, variables and config file, read into one typed Config.

flags (the table) → values (text to values) → sources (command line, environment, file) → build →
model (Config) → checks; parse does all of it. Only the config file is read from disk.
"""
