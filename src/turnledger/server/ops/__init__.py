"""What operators look at: logs, metrics, readiness, the watchdog, and counters that workers share."""
