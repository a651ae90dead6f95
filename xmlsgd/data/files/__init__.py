"""Files: compressed input, atomic writes, temporary folders, folders of saved models."""
