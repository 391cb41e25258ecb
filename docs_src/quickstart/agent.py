import asyncio
import os

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {os.environ['DPICL_API_KEY']}"}, timeout=60)
    async with http, Client(streamable_http_client(os.environ["DPICL_URL"] + "/mcp", http_client=http)) as client:
        question = {"task": "support.team", "query": "How do I end my subscription?"}
        answer = await client.call_tool("ask", question)
        print(answer.content[0].text if answer.is_error else answer.structured_content["label"])


asyncio.run(main())
