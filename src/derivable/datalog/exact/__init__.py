"""Exact inference: ground derivations compiled into circuits."""
