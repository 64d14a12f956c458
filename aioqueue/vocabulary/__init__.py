"""Values that clients, workers and stores share. Nothing here does input or output."""

__all__: list[str] = []
