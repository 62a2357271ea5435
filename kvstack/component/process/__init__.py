"""The process itself: signals, its ordered end, the collector, the allocator."""
