"""A web server for one model, and a backend of Annif; starlette and annif are imported when used."""
