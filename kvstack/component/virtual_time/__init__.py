"""Virtual time: an event loop, its clock, and the rate of its time.

timeline    the current time and its limit: stopped, at a multiple of real time, or at once
loop        an event loop on a timeline; sockets are served while time stands
clock       the same time as clocks of stores, servers and agents
"""
