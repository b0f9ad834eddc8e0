"""Messages whose outcome is not known yet: written down before they are sent."""
