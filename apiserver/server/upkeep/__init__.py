"""Background jobs: objects that are made at start and maintained, and repairs.

Each module has one job, which runs at start and periodically; `loop` runs them. Jobs write through
the verbs like other clients, and do not depend on each other.
"""
