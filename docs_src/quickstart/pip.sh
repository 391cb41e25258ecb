make wheel
pip install "$(echo dist/dp_icl-*.whl)[server]"
dpicl serve --synthetic
