"""Left until every environment is installed anew: its entry point names the plugin here."""

from sesn.pytest_plugin import *  # noqa: F403
