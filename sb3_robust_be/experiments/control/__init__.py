"""Control experiments: agents in environments, many seeds each."""
