"""The operator's wishes: etcd's flags, variables and config file, read into one typed Config.

flags (the table) → values (texts to values) → sources (command line, environment, file) → model
(Config) → parse (all of it, checked). Reads the config file and nothing else of the world.
"""
