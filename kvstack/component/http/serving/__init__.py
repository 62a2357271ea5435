"""HTTP served on an asyncio loop, for programs that are built on the store.

    clients ◄──► transport (native or portable) ──requests──► HttpServer ──► handler
                     ▲                                                          │
                     └────────── one flush per loop iteration ◄─────────────────┘

- `server` — HttpServer: starts, drains, stops; sends the same bytes to many answers.
- `listeners` — addresses, certificates and limits.
- `request`, `answer` — the arguments of a handler.
- `handler_tasks` — a handler is stepped at once and becomes a task only if it waits.
- `transport` — the interface to what owns the sockets; `native` (the crate: HTTP/1.1, HTTP/2, TLS)
  and `portable` (asyncio, h11 and ssl: HTTP/1.1, TLS) implement it.

Paths, users and media types are not interpreted here.
"""
