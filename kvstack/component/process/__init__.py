"""The process: signals, ordered shutdown, garbage collector, allocator."""
