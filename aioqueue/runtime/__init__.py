"""What every part needs of the process and its event loop: signals, exits, tasks that outlive their bound, batches, logs."""

__all__: list[str] = []
