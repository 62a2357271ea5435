"""The pages that are not resources: discovery, OpenAPI, health, metrics, version, flow control."""
