"""A browser in process, as far as the dashboard needs one."""

import html
import re

from fastapi.testclient import TestClient

from service.operations.services import Services
from service.serving.web import create_app

OURS = {"Origin": "http://testserver"}
HTMX = {"HX-Request": "true"}


def words(page: str) -> str:
    """The text that a person reads on a page."""
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", page).split()))


def token_on(page: str) -> str:
    """The token that a page shows."""
    return re.search(r'<code id="token">(dpicl_[\w-]+)</code>', page)[1]


class Browser:
    """A client that keeps cookies and sends an Origin with every form. It has an admin key of its own, ``chief``."""

    def __init__(self, services: Services):
        self.client = TestClient(create_app(services), headers=OURS, follow_redirects=False)
        self.services = services
        self.records = services.records
        self.key, self.token = services.records.keys.create("chief", "admin")

    def get(self, path: str, **options):
        return self.client.get(f"/admin{path}", **options)

    def read(self, path: str) -> str:
        """The text that a person reads on the page at an address."""
        return words(self.get(path).text)

    def post(self, path: str, data: dict | None = None, **options):
        data = {"csrf": self.csrf(), **(data or {})}
        return self.client.post(f"/admin{path}", data=data, **options)

    def confirm(self, page):
        """Confirm what a page shows once more before it is done, as often as it asks."""
        while 'id="doubts"' in page.text:
            action = re.search(r'<form method="post" action="([^"]+)" class="row">', page.text)
            fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page.text)
            data: dict[str, list[str]] = {}
            for name, value in fields:
                data.setdefault(name, []).append(html.unescape(value))
            page = self.client.post(action[1], data=data)
        return page

    def done(self, path: str, data: dict | None = None) -> str:
        """Send a form that is taken, and confirm it if it cannot be undone; return the address it leads to."""
        page = self.confirm(self.post(path, data))
        assert page.status_code == 303, page.text
        return page.headers["location"].removeprefix("/admin")

    def refused(self, path: str, data: dict | None, field: str, status: int = 422) -> str:
        """Send a form that is refused; return the page, which has a problem beside this field alone."""
        page = self.confirm(self.post(path, data))
        assert (page.status_code, re.findall(r'id="(\w+)-problem"', page.text)) == (status, [field])
        return page.text

    def csrf(self) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.get("/").text)
        return found[1] if found else ""

    def sign_in(self, token: str | None = None, **data):
        return self.client.post("/admin/sign-in", data={"key": token or self.token, **data})

    def ask(self, token: str, query: str = "a toy"):
        """Ask a question over the API, whose answer is charged."""
        headers = {"Authorization": f"Bearer {token}"}
        return self.client.post("/v1/tasks/toys.colour/answers", json={"query": query}, headers=headers)


def signed_in(services: Services) -> Browser:
    """The browser of an admin who is signed in."""
    browser = Browser(services)
    assert browser.sign_in().status_code == 303
    return browser
