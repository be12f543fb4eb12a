"""Left until every environment is installed anew: its entry point names the plugin here."""
