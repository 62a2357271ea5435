"""What worlds above the store stand on: store members, API servers and links, in virtual time.

    members.py    members of the store, the real ones, whose turns are taken by the event loop
    channel.py    the way of one API server to the members, as the store's client has it
    servers.py    API servers that crash, freeze and start again
    links.py      the way of a client to the API servers

Everything runs on one event loop whose time is virtual (tests/apiserver/support/virtual_time.py),
and everything drawn is drawn from the seed of the world.
"""
