"""MNTDP."""
