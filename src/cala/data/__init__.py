"""Image sets, embeddings files and protocols: who is base, who is novel, what the shots are."""
