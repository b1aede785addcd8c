"""Deployment on many machines with Ray Serve, which places replicas, distributes requests and scales.

    app.py       the deployment that `serve deploy` starts
    proxy.py     middleware in Ray's HTTP proxy: repeats a request on another replica when one is lost
    replica.py   the ASGI application of each replica, without sockets and signals
    repeat_header.py     the header with the job's id, which is the same in all tries of a request

See docs/operations.md and ADR 15.
"""
