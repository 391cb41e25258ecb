import random
import sys

CALLS = {
    "Rückruf": ["My stitches are warm and swollen", "The wound itches and oozes", "My stitches opened in bed"],
    "Termin": ["I need to move my appointment", "Can my mother's check-up be earlier", "Please cancel my visit"],
    "Rezept": ["My tablets run out on Friday", "I lost the prescription", "The pharmacy has no record of my tablets"],
    "Abrechnung": ["I was charged twice for the scan", "My insurance wants an invoice", "The invoice has a wrong name"],
}
WHEN = ["since yesterday", "after the holiday", "for my son", "again", "before Monday", "as I was told on the phone"]

draw = random.Random(11)
lines = ["Anrufer;Anliegen;Warteschlange;Notiz"]
for number in range(900):
    queue = draw.choice(sorted(CALLS))
    call = f"{draw.choice(CALLS[queue])} {draw.choice(WHEN)}, case {draw.randrange(100, 1000)}"
    cells = [f"P{draw.randrange(600):03}", call, queue, draw.choice(["", "–", "späte Schicht"])]
    if number % 100 == 50:
        cells[1 + number % 200 // 100] = ""
    lines.append(";".join(cells))
sys.stdout.buffer.write("\r\n".join([*lines, ""]).encode("cp1252"))
