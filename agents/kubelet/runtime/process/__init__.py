"""Containers as processes of this machine: namespaces and an overlay, without a container engine.

    process_runtime ─► specs     what a container is to be; `options` are those of all
                    ├► containers  those that run, and those that have ended
                    ├► files     what is on the disk of pods and containers
                    ├► images    where a container's files come from
                    ├► host_image  the rules for those of the machine itself
                    ├► sandboxes what the containers of a pod share; its ids are of `user_ids`
                    ├► cgroups   what it may use, and uses (`usage`)
                    ├► shims     starts and asks the program that stays with a container (`shim`)
                    ├► sessions  commands in it, and its own input and output
                    └► features  what the kernel of this machine can do

Processes, mounts, host name and shared memory are a container's own; the network is the node's.
Containers end with this process (however that ends), or live on and are found again. It needs root.
"""
