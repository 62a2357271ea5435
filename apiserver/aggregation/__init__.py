"""API aggregation: API servers of APIServices with a Service.

remotes        the aggregated servers, and their availability
backend        requests to one of them
in_process     APIs that this process serves
proxy          forwards requests of clients
availability   maintains the condition Available
discovery      their discovery and OpenAPI documents
"""
