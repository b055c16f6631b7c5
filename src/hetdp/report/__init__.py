"""Plans and releases for readers: facts, text, HTML, pictures, comparisons."""
