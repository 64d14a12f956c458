"""The schema, as numbered SQL files."""
