"""What can be checked: the installation (doctor), a release from outside (audit), the data by its owner (check)."""
