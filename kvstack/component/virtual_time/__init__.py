"""Time that goes on as it is told to: an event loop, its clock, and how fast they go.

timeline    where time is, and how far it may be: stopped, so many times as fast, or at once
loop        an event loop on a timeline; while time stands, sockets are served all the same
clock       the same time as clocks of stores, servers and agents
"""
