"""Read, check, convert and write data sets: files of the usual formats, stores, public, built-in and synthetic sets."""
