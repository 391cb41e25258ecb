export DPICL_ENCRYPTION_KEY=$(openssl rand -base64 32)
export DPICL_DATABASE_URL=sqlite:///hotline.sqlite
python hotline.py > hotline.csv
HERE="hotline.csv --skip-incomplete --encoding cp1252 --unit-id Anrufer --map text=Anliegen --map queue=Warteschlange"
dpicl kb create hotline --epsilon 3 --delta 5e-4 --public-size 900 --yes --field text --field queue
dpicl kb ingest hotline $HERE
dpicl plan preview plan.yaml --rows $HERE
