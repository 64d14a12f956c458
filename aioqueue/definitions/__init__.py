"""What a program defines with aioqueue: calls, job types, registries, middlewares, resources and settings."""

__all__: list[str] = []
