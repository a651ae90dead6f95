"""Devices by name: `"cpu"` is `xmlsgd.devices.cpu`; the folder is the registry."""
