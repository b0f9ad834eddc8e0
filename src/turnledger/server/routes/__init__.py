"""The endpoints, one module for each thing they are about."""
