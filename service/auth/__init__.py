"""Who may use the server, and how much: looked at before anything is read or routed."""
