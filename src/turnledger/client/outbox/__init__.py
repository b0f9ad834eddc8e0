"""Messages of unknown outcome, recorded before they are sent."""
