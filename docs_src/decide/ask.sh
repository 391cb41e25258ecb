export DPICL_API_KEY=$(dpicl keys create desk --quota 50)
export DPICL_URL=http://127.0.0.1:8771
dpicl serve --port 8771 &
until curl --silent --fail "$DPICL_URL/readyz"; do sleep 1; done
dpicl ask hotline.queue "Can I come on Tuesday instead?"
dpicl budget
kill %1 && wait
