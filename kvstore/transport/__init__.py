"""The client port's sockets: batches of calls in, batches of answers out."""
