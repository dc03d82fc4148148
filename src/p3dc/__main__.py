"""``python -m p3dc``."""

from p3dc.cli import main

if __name__ == "__main__":
    main()
