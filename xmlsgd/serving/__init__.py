"""A web server for one model: suggestions, explanations, learning from feedback; starlette is imported when used."""
