from cli.inside import inside

__all__ = ["inside"]
