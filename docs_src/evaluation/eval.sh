dpicl eval measured --plan plan.yaml --queries 50 --answers 100 --epsilon 1 --epsilon 3 --csv results.csv
