"""The kubelet's HTTPS API: logs, commands in containers, ports, pods, statistics, metrics, health.

server ─► access           who asks, and whether they may
      ├► log_stream        GET /containerLogs/…
      ├► upgrades, wires   how a client speaks: WebSocket or SPDY/3.1
      ├► remote_command    exec and attach
      ├► port_forward
      └► stats, metrics
"""
