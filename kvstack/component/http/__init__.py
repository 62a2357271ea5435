"""HTTP/1.1 as everything in this project calls it, and frames of WebSockets.

    HttpClient ──► dialling: proxies, addresses, TLS (tls: whom to believe)
               └─► Connection, kept ──► AnswerReader: bytes in, an answer out

- `client` — requests: `request` for one body there and one back, `open` for what streams or is
  upgraded (`streamed_answer`); `single` is one request on a connection of its own.
- `request_head` writes what is sent, `answers` reads what comes, `connection` is one connection.
- `dialling`, `proxies`, `tls` are the way there; `faults` says what went wrong as Go's client does.

Nothing here follows redirects, keeps cookies or decompresses. Time is the caller's to bound.
Servers are in `kvstack.component.http.serving`.
"""
