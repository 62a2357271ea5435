"""Dynamically provisioned volumes: directories of the node that `kvstack up` runs.

    a claim of the class local-path ─► the scheduler chooses a node ─► provisioner ─► a volume
                                                                          └─► a directory

    provisioner   decides; uses a service account of its own (`access`)
    volumes       the objects: class, volume, and what a claim may ask for
    directories   the node's side

Hollow nodes have no directories, and get volumes all the same. Other nodes get none: nothing of
this process makes directories there.
"""
