"""What agents learn on Cliff World, cell by cell."""
