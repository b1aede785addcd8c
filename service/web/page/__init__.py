"""The page for people, at `/`: static files and their routes. Its script uses `/v1` like any other client."""
