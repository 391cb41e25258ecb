"""The application on Ray Serve: its deployments, settings and a Ray of its own."""
