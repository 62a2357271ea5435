"""The shim, which stays with one container: starts it, keeps its log, records its exit.

    main ─► container   namespaces, files, user, exec: what the container's process does first
       ├► launch_spec    what it starts, as a later kubelet reads it, too
       ├► log_file      what it writes, in CRI's format
       └► clients       who is attached, runs commands in it, or waits for its end

It imports nothing but the standard library and these modules, and has one thread: only so may a
process enter namespaces. It needs no site-packages, so that it starts in a few milliseconds.
"""
