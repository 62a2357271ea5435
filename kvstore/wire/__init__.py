"""Messages on the wire: the RPC table, checks, codecs and splicing; `gen` is generated."""
