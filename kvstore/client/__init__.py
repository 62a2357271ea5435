"""Clients of the store: one small asynchronous protocol, in process or over the network.

    async with connect(["10.0.0.1:2379", "10.0.0.2:2379"]) as store:
        key = await store.get(b"k")
        async with store.watch(b"a", b"b", start_revision=key.revision + 1) as watch:
            async for value in watch: ...

`store` is the protocol, `values` has its arguments and results, `errors` its errors. A Store uses
one of three channels (`channel`), which carry bytes and do not interpret them:

    native     the crate as client: few HTTP/2 connections, calls in batches
    grpcio     where there is no crate
    embedded   a member in the same process, without sockets
"""

from kvstore.client.connect import connect as connect
from kvstore.client.options import ClientOptions as ClientOptions
from kvstore.client.options import ClientTls as ClientTls
from kvstore.client.store import Store as Store
