"""``python -m oversharp`` is the command."""

from oversharp.diagnostics.app.process import main

if __name__ == "__main__":
    main()
