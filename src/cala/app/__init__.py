"""The HTTP service and its page (`cala serve`): one process, one model, one port."""
