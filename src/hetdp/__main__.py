"""`python -m hetdp` is the command `hetdp`."""

from ._cli import main

main()
