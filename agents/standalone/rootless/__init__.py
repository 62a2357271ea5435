"""A node without root: `kvstack up` in a user namespace.

    kvstack up ─┬─ outside (a process of its own, in the machine's namespaces)
                │     maps ids, runs the uplink (pasta or slirp4netns), listens on the machine
                └─ itself, root of a user namespace with a network, mounts, IPC and a host name

`ids` and `facts` find out what the kernel and the system allow, `entry` enters, `outside` is the
process beside, `published` passes on what is listened on outside: the API server, node ports and
ports of pods.
"""
