"""Run the command line with `python -m turnledger`."""

from turnledger.cli import main

if __name__ == "__main__":
    main()
