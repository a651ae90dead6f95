"""One runner a peer, each started with that peer's own interpreter."""
