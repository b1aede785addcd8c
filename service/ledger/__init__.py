"""What the server remembers of requests beyond its own life: one SQLite file, shared by the processes of a host."""
