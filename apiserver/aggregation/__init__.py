"""API servers behind this one: what APIServices with a Service stand for.

remotes        which there are, and whether they can be asked
backend        requests to one of them
in_process     what agents of this process serve
proxy          passes requests of clients on
availability   keeps the condition Available
discovery      what they serve, for discovery and OpenAPI
"""
