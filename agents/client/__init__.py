"""A client of the API for agents: requests, watches, informers, a work queue, leases, events.

    transport ◄── api ◄── reflector ◄── informer ◄── informers
                   ▲
                   └── leader_election, event_recorder

Nothing here interprets the objects.
"""
