"""The conformance of this package with the classes of released brokers, in one command: ``python -m tests.conformance.all``."""
