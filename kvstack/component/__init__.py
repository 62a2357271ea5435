"""The base of every program of this project: log, metrics, flags, certificates, sockets."""
