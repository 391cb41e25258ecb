dpicl eval measured --plan plan.yaml --queries 50 --answers 100 --epsilon 3 --ensemble 10 --ensemble 40 --png slots.png
