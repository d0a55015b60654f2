"""`python -m chunkrecall` is the `chunkrecall` command."""

from chunkrecall.cli import main

if __name__ == "__main__":
    main()
