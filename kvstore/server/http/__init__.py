"""HTTP beside gRPC: the JSON gateway, health, version, metrics and debug pages.

    native transport ──┐                       ┌─ gateway ──► LocalClient ──► node
                       ├─► access ─► site ─────┼─ health, version, vars, profiles
    own HTTP/1 server ─┘   (CORS, hosts)       └─ /metrics, /ui: given by others

Handlers know `exchange.Request` and `exchange.Responder` and no socket, so both sources feed them.
Everything here runs on the side loop; the node is reached only through its local client.
"""
