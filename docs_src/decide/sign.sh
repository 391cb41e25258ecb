dpicl plan sign plan.yaml --yes
