"""Control experiments: agents in environments, many seeds each."""

__all__: list[str] = []
