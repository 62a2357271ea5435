"""The whole in the simulation: store, API servers, controllers, schedulers, nodes and their users.

world.py      the parts, faults and steps of one seed
agents.py     controller managers, schedulers and nodes, as processes that crash
workload.py   what users do: make, change, scale, evict and delete
objects.py    all objects as the store has them, told of each change
promises.py   what must hold at every change
settled.py    what must hold once faults have ended
canaries.py   controllers with a bug each, which the checks must find
"""
