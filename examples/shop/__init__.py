"""A shop whose orders are shipped by background jobs, embedded in FastAPI, Starlette, aiohttp, and a plain script."""
