"""The server as several processes: front ends do HTTP and images; an engine process for each device computes.

    launcher ─ starts, restarts, ends ─▶ front_end ×N ◀─ channel: messages ─▶ engine ×devices
                                             └──────────── slots: pixels ──────────┘

A front end runs the same application as a single process, with `RemoteBackend` in place of `LocalBackend`.
"""
