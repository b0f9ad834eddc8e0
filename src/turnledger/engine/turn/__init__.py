"""A turn, from the request to its commit: validate, begin, acquire the lane, run, commit, finish."""
