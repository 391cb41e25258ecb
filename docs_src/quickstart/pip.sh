pip install 'dp-icl[server]'
dpicl serve --synthetic
