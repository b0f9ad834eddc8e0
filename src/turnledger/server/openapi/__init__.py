"""Endpoints and their description: the routes and the OpenAPI document come from one list."""
