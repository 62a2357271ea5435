"""Containers of a container engine, over the container runtime interface (CRI), version 1.

    cri_runtime ─► client    calls over a Unix socket
                ├► specs     what a pod asks for, as messages
                ├► answers   what the engine says, as values of the runtime
                └► streams   exec, attach and port-forward, over SPDY/3.1 to the engine's own server

Containers are the engine's: they live on without this process, and are found again by their labels.
"""
