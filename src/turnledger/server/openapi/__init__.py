"""Endpoints and the OpenAPI document: the routes and the document are made from one list."""
