"""`retouch install-gpu`: which packages a host with an NVIDIA GPU needs, and their installation."""
