"""What every store decides alike: used by the adapters and by the store in memory, so that each rule stands once."""

__all__: list[str] = []
