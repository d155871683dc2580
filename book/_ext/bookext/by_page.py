"""Values that one page gives and others show, kept in Sphinx's environment."""


class ByPage:
    """A dictionary by page: forgotten with its page, and collected from processes that read in parallel.

    Args:
        name: of the attribute of the environment that holds it.
    """

    def __init__(self, name: str):
        self.name = name

    def __call__(self, env) -> dict:
        """Return the dictionary of an environment."""
        if not hasattr(env, self.name):
            setattr(env, self.name, {})
        return getattr(env, self.name)

    def connect(self, app) -> None:
        app.connect("env-purge-doc", lambda app, env, page: self(env).pop(page, None))
        app.connect("env-merge-info", lambda app, env, pages, other: self(env).update(
            {page: value for page, value in self(other).items() if page in pages}))
