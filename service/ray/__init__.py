"""Deployment on many machines with Ray Serve, which places, scales and replaces servers; requests bypass it.

    app.py              the application that `serve deploy` starts
    replica.py          a replica: a whole server on a free port of its node, reported to the proxies
    server_process.py   the replica's server process
    __main__.py         entry point of that process, which makes it end with its replica
    registrar.py        one per HAProxy, on the same host: writes the replicas into HAProxy's table
    proxy_table.py      HAProxy's table of servers, over its runtime API
    scaling.py          the wanted number of replicas, from the depth of their queues

See docs/operations.md and ADR 35.
"""
