"""HTTP/1.1 as a client of small requests has it: one body there, one body back.

    HttpClient ──► dialling: addresses, TLS     kept connections, by address and TLS
               └─► Exchange on a Connection ──► AnswerReader: bytes in, an answer out

A general client costs several times what the exchange itself does, and admission pays for it with
every write. What streams, is upgraded or is redirected is not for this one.
"""
