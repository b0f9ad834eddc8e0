"""`python -m turnledger` is the command line."""

from turnledger.cli import main

if __name__ == "__main__":
    main()
