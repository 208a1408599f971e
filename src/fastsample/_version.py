"""The package's version: the one place that holds it; the build reads it from here."""

__version__ = "0.2.0"
