"""`python -m elvis` is the `elvis` command."""

from elvis.cli import main

if __name__ == "__main__":
    main()
