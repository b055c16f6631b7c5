"""`python -m hetdp` is the command `hetdp`."""

from .cli import main

main()
