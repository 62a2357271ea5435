"""What an agent needs of the API: requests, watches, informers, a work queue, leases, events.

    transport ◄── api ◄── reflector ◄── informer ◄── informers
                   ▲
                   └── leader_election, event_recorder

Nothing here knows what the objects mean.
"""
