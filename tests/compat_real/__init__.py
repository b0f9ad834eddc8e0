"""Real clients and model servers, which `make compat` installs and runs."""
