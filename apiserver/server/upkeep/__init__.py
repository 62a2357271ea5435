"""What a server does besides answering: objects that are made at start and kept, and repairs.

Each module has one job, which it does once and again from time to time; `loop` runs them. They
write through the verbs, as anybody does, and know nothing of each other.
"""
