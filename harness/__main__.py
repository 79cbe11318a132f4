"""`python -m harness` is `sqnr`."""

from harness.cli import main

if __name__ == "__main__":
    main()
