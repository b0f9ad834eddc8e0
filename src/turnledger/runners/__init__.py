"""Chat models, and the runner that puts their answers into turns."""
