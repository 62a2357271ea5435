"""The verbs: what a request does, from its body to its result, in Kubernetes' own order.

    create  get  list  watch  update  patch  delete  deletecollection      one module a verb
    subresources/                                                          acts on part of an object

A verb is a coroutine that gets a `Call` and returns a result (results.py), or raises ApiError. It
waits for the store alone. It knows nothing of HTTP: how a result is written is http's.
"""
