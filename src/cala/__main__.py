"""`python -m cala` is the command `cala`."""

from cala.cli import main

if __name__ == "__main__":
    main()
