"""What every program of this project is made of: log, metrics, flags, certificates, sockets."""
