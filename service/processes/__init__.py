"""The server as several processes: front ends do HTTP and pictures, an engine process for each device computes.

    launcher ─ starts, restarts, ends ─▶ front_end ×N ◀─ channel: messages ─▶ engine_process ×devices
                                             └──────────── slots: pixels ──────────┘

A front end runs the same app as a single process; its room is `remote_backend`.
"""
