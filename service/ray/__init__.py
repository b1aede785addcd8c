"""Deployment on many machines with Ray Serve, which places servers, scales and replaces them; requests do not pass it.

    app.py              the application that `serve deploy` starts
    replica.py          a replica: a whole server on a free port of its node, which the proxies learn of
    server_process.py   that server's process
    __main__.py         what that process does first: it ends with its replica
    registrar.py        one for each HAProxy, on its host: tells it which replicas there are
    proxy_table.py      HAProxy's table of servers, over its runtime API
    scaling.py          how many replicas there should be, by the depth of their queues

See docs/operations.md and ADR 35.
"""
