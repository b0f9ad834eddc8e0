"""What the client does, without input or output: each verb as a generator of steps."""
