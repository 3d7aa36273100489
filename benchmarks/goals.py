"""What a table was to show, and whether it does."""

from __future__ import annotations


def told(goals: dict[str, bool]) -> dict[str, bool]:
    """Prints every goal with its verdict; they go into the numbers as well."""
    print("\ngoals")
    for goal, met in goals.items():
        print(f"  {'met   ' if met else 'MISSED'}  {goal}")
    return goals
