"""Many machines by Ray Serve: the same server, once a replica; Ray places replicas, spreads requests and scales.

    proxy.py     in Ray's HTTP proxy of each node: asks another replica when one is lost over a request
    app.py       what `serve deploy` starts: the deployment, from its arguments
    tries.py     what both know of a request that may come more than once: the id of its job
    replica.py   in each replica: the ASGI application as `retouch serve` has it, without its sockets

See docs/operations.md and ADR 15.
"""
