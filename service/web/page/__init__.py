"""The page for people, at `/`: static files and their routes. Its script is a client of `/v1` like any other."""
