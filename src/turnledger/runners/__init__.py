"""What produces drafts: models, and the runner that puts their answers into turns."""
