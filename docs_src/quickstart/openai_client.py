import os

from openai import OpenAI

client = OpenAI(base_url=os.environ["DPICL_URL"] + "/v1", api_key=os.environ["DPICL_API_KEY"])
completion = client.chat.completions.create(
    model="support.team",
    messages=[{"role": "user", "content": "The pump makes no sound."}],
)
print(completion.choices[0].message.content)
print(completion.dp_icl["cost"])
