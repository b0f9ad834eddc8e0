"""For operators: logs, metrics, readiness, the watchdog, and counters that workers share."""
