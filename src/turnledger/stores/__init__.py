"""Stores: siblings that never import each other. Each implements the engine's Store protocol."""
