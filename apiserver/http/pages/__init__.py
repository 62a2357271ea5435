"""The pages that are no resources: discovery, OpenAPI, health, metrics, version, flow control."""
