"""The project's HTTP/1.1 client, and frames of WebSockets.

    HttpClient ──► dialling: proxies, addresses, TLS
               └─► Connection, kept ──► AnswerReader: bytes in, an answer out

- `client` — requests: `request` with whole bodies, `open` for what streams or is
  upgraded (`streamed_answer`); `single` is one request on a connection of its own.
- `request_head` writes what is sent, `answers` reads what comes, `connection` is one connection.
- `dialling`, `proxies`, `tls` make connections; `faults` has errors with the texts of Go's client.

Nothing here follows redirects, keeps cookies or decompresses. The caller bounds the time.
Servers are in `kvstack.component.http.serving`.
"""
