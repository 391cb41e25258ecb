"""``dpicl serve --synthetic``: made-up data to serve, and what to paste to ask about them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import typer

from service.cli.output import progress
from service.records.synthetic_store import KEY_BASE64, NOTICE
from service.records.witness import witness_url
from service.settings import Settings
from service.synthetic.setup import PLANS, SMALL_PLANS, Synthetic, synthetic_database
from service.telemetry.logs import configure_logs

_HOW_TO_ASK = """
{notice}
It is gone when you stop this. To ask, in another terminal:

  export DPICL_URL={url} DPICL_API_KEY={analyst}
  dpicl ask support.team "I was charged twice in March."

  curl "$DPICL_URL/v1/tasks/support.team/answers" --header "Authorization: Bearer $DPICL_API_KEY" \\
    --header "Content-Type: application/json" --data '{{"query": "My parcel was left in the rain."}}'

  python - <<'END'
  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="{analyst}")
  messages = [{{"role": "user", "content": "The pump makes no sound."}}]
  print(client.chat.completions.create(model="support.team", messages=messages).choices[0].message.content)
  END

The budget, and what is left of it:  dpicl budget --url $DPICL_URL
The dashboard:                       {url}/admin/
  where you sign in with this key:   {admin}
Other admin commands (dpicl plan preview, dpicl keys list, ...) need the database and its published key:

  export DPICL_DATABASE_URL={database} DPICL_WITNESS_URL={witness} DPICL_ENCRYPTION_KEY='{key}'
"""


@contextmanager
def made_up_data(*, language_model: bool) -> Iterator[Synthetic]:
    """A temporary database of made-up tickets, which the environment names until the block ends."""
    from service.embedding.embedder import Embedder, cores

    configure_logs()
    typer.echo(NOTICE)
    plans = SMALL_PLANS if language_model else PLANS
    with ExitStack() as stack:
        with progress() as bar:
            task = bar.add_task("Reading made-up tickets, and signing plans for them", total=None)
            told = lambda done, total: bar.update(task, completed=done, total=total)  # noqa: E731
            data = stack.enter_context(synthetic_database(Embedder(threads=cores()).embed, told, plans))
        yield data


def say_how_to_ask(data: Synthetic, url: str) -> None:
    """Print what a newcomer pastes."""
    typer.echo(
        _HOW_TO_ASK.format(
            notice=NOTICE,
            url=url,
            analyst=data.analyst_token,
            admin=data.admin_token,
            database=data.database_url,
            witness=witness_url(Settings()),
            key=KEY_BASE64,
        )
    )
