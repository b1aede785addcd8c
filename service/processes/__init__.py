"""The server as several processes: front ends handle HTTP and images; an engine process per device computes batches.

    launcher ─ starts, restarts, ends ─▶ front_end ×N ◀─ channel: messages ─▶ engine ×devices
                                             └──────────── slots: pixels ──────────┘

A front end runs the same application as a single process, with `RemoteBackend` in place of `LocalBackend`.
"""
