"""Programs that show aioqueue at work."""
