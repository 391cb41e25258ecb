// Only files of these modules are used: the kinds that they define. `go mod tidy` would drop them.
module dp-icl/cluster/kinds

go 1.26

require (
	github.com/external-secrets/external-secrets v1.3.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/gateway-api v1.4.1
)
