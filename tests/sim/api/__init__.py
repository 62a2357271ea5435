"""API servers in the simulation: what clients see of several servers is compared with the store.

world.py      store members, API servers, clients and faults of one seed
oracle.py     everything that ever changed in the store, in order
checks.py     what answers and watches must be by that
clients.py    clients that write, read and watch
canaries.py   servers with a bug each, which the checks must find
"""
