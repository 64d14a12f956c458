"""What is seen of aioqueue from outside: spans and metrics. Only this folder knows OpenTelemetry."""

__all__: list[str] = []
