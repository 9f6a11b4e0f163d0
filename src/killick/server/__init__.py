"""The server: a store over HTTP, its sessions as they happen, and the web page."""
