"""``sb3-robust-be benchmark [population]``: our algorithms, or whole populations, against DQN in one process."""

from __future__ import annotations

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """
    :param argv: The command's arguments.
    :return: The exit code.
    """
    if argv[:1] == ["population"]:
        from sb3_robust_be.benchmark import population_benchmark as population

        return population.main(argv[1:])
    from sb3_robust_be.benchmark import single_command

    return single_command.main(argv)
