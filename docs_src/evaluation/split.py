import csv
from pathlib import Path

with Path("tickets.csv").open(newline="", encoding="utf-8-sig") as file:
    delimiter = max(",;\t|", key=file.readline().count)
    file.seek(0)
    rows = list(csv.DictReader(file, delimiter=delimiter))
testing = set(sorted({row["unit_id"] for row in rows})[::5])
Path("measured").mkdir(exist_ok=True)
for name, wanted in (("train", False), ("test", True)):
    with Path(f"measured/{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row for row in rows if (row["unit_id"] in testing) == wanted)
