"""The schema, as numbered SQL files."""

__all__: list[str] = []
