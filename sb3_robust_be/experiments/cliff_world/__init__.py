"""What agents learn on Cliff World, cell by cell."""

__all__: list[str] = []
