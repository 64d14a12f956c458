"""One set of known mistakes, for the conformance cases and the simulation: each names the promise that notices it."""
