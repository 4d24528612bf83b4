"""Experiments on linear prediction: exact minimisers, and step-size sweeps."""

__all__: list[str] = []
