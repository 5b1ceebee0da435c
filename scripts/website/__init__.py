"""The documentation as a site: pages of the repository, the reference of public names, and notebooks that were run."""
