"""The command `status`: what is done, what failed, what remains."""

from __future__ import annotations

from json import dumps

from harness.commands import options
from sesn.tools.consoles import consoles


@options.with_choice
def status(choice: options.Choice, verbose: options.Verbose = False, json: options.AsJson = False) -> None:
    """Show for each experiment what is done, what failed and why, what remains, and how long the rest will take."""
    with consoles(quiet=False, data_on_stdout=json) as (console, _):
        from harness.commands.asked import Asked
        from harness.commands.engines import Where
        from harness.commands.overview import as_dict, print_status, running_as_dict
        from harness.records import BUDGETS

        asked = Asked(choice)
        place = Where("local", choice.jobs, choice.device, choice.threads)
        ledgers = [asked.ledger(place, budget) for budget in ([asked.budget] if choice.budget else BUDGETS)]
        shown = [ledger for ledger in ledgers if choice.budget or asked.has_rows(ledger)]
        if json:
            found = {**as_dict(shown, cells=False), "running": running_as_dict(choice.rows)}
            console.data.write(dumps(found, indent=1) + "\n")
        else:
            print_status(shown, asked, console, verbose=verbose)
