import csv
from pathlib import Path

with Path("tickets.csv").open(newline="") as file:
    rows = list(csv.DictReader(file))
testing = set(sorted({row["unit_id"] for row in rows})[::5])
Path("measured").mkdir(exist_ok=True)
for name, wanted in (("train", False), ("test", True)):
    with Path(f"measured/{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row for row in rows if (row["unit_id"] in testing) == wanted)
