# fedlib. Needs Python 3.11 or newer and make, nothing else: all packages go into .venv.
PYTHON   ?= python3
TORCH    ?=
PROFILE  ?= quick
NOTEBOOK ?=
SET      ?=
JOBS     ?=
PARALLEL ?=
A        ?= figures/quick
B        ?=
CORES    := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
WORKERS  ?= $(CORES)# of the tests; slow ones also wait, so test-all has one more
SAMPLE   ?= 0
SEED     ?= 0
FILES    ?=
PAPER    ?=
ITEM     ?=
BUDGET   ?=
PEERS    ?=

VENV  := .venv
PY    := $(VENV)/bin/python
PIP   := $(PY) -m pip install --quiet --disable-pip-version-check
# uv takes half of pip's time, but it does not know pip's settings: where there are any (an index, a proxy), pip installs.
INSTALL = @{ [ -z "$$($(PY) -m pip config list)" ] && $(PIP) uv && $(PY) -m uv pip install --quiet --python $(PY) $(1); } || $(PIP) $(1)
# Each target installs the extra of pyproject.toml that it needs, with the versions of requirements.lock.
FOR_NOTEBOOKS := $(VENV)/.installed-notebooks
FOR_TEST      := $(VENV)/.installed-test
FOR_SITE      := $(VENV)/.installed-site
# PyTorch without CUDA: 0.2 GB instead of 5. With a mirror of your own: make figures TORCH=cpu TORCH_CPU=https://...
TORCH_CPU ?= https://download.pytorch.org/whl/cpu
BATCH  = --profile $(PROFILE) $(foreach n,$(NOTEBOOK),--notebook '$(n)') $(foreach s,$(SET),--set '$(s)') \
         $(if $(JOBS),--jobs $(JOBS)) $(if $(PARALLEL),--parallel $(PARALLEL))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help figures test test-all test-browser mutants lab evidence evidence-report evidence-recheck dataset site slides methods bench diff setup lint lock strip release clean distclean

help:  ## Show this list
	@echo "make figures makes all tables and figures; make lab opens the notebooks."
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo "Options:  PROFILE=smoke|quick|paper  NOTEBOOK=\"01 02\"  SET=\"seeds=3\"  JOBS=2  PARALLEL=2  PYTHON=python3.12  TORCH=cpu"

figures: $(FOR_NOTEBOOKS)  ## Execute the notebooks; tables and figures are written to figures/<profile>/<paper>
	@$(PY) -m fedlib.tools.batch $(BATCH)

PYTEST = $(PY) -m pytest --dist loadfile --no-loadscope-reorder

test: $(FOR_TEST) lint  ## Run lint, then all tests but the slow ones; FEDLIB_DATA=<folder> adds those on real data
	$(PYTEST) -n $(WORKERS) -m "not slow"

test-all: $(FOR_TEST) lint  ## Run lint, then all tests: also whole notebooks, the site, a browser, a cluster
	$(PYTEST) -n $$(($(WORKERS) + 1))

test-browser: $(FOR_TEST)  ## Run a notebook in JupyterLab in a real browser; FEDLIB_SCREENSHOTS sets a folder for screenshots
	$(PY) -m pytest -s tests/test_browser.py

mutants: $(FOR_TEST)  ## Mutation testing: plant errors in copies of the library and list those that no test finds: SAMPLE=100 SEED=1 FILES=fedlib/stack.py
	@$(PY) tests/mutants.py --sample $(SAMPLE) --seed $(SEED) $(if $(JOBS),--jobs $(JOBS)) $(FILES)

lab: $(FOR_NOTEBOOKS)  ## Open the notebooks in JupyterLab
	@$(PY) -m jupyter lab --LabApp.default_url=/lab/tree/notebooks/start.ipynb

evidence: $(FOR_NOTEBOOKS)  ## Do the missing runs of the papers' tables, one row for each: PAPER=pfedsim ITEM=table3 BUDGET=2h JOBS=2
	@$(PY) -m fedlib.studies run $(foreach p,$(PAPER),--paper '$(p)') $(foreach i,$(ITEM),--item '$(i)') $(if $(BUDGET),--budget '$(BUDGET)') --jobs $(or $(JOBS),1)

evidence-report: $(FOR_NOTEBOOKS)  ## Make tables, ledgers and the scoreboard of all printed numbers from the rows
	@$(PY) -m fedlib.studies report

evidence-recheck: $(FOR_NOTEBOOKS)  ## Repeat the first rounds of old rows with the old code and today's: where they agree to the bit, the row stays valid
	@$(PY) -m fedlib.studies recheck $(foreach p,$(PAPER),--paper '$(p)')

dataset: $(FOR_TEST)  ## Write all rows as figures/dataset/rows.parquet, with a data card and Croissant metadata
	@$(PY) -m fedlib.tools.parquet

LESSONS := $(addprefix figures/$(PROFILE)/,first_steps/00_first_steps.ipynb playground.ipynb $(notdir $(wildcard notebooks/problems*.ipynb)))

.SECONDEXPANSION:
$(LESSONS): notebooks/$$(notdir $$@) $(shell git ls-files 'fedlib/*.py' 2>/dev/null) | $(FOR_SITE)
	@mkdir -p $(dir $@)
	@$(PY) -m papermill --no-progress-bar --log-level ERROR --cwd notebooks $< $@.part 2> $@.log || { cat $@.log >&2; exit 1; }
	@mv $@.part $@ && rm $@.log

site: $(FOR_SITE) $(LESSONS)  ## Make the site of results, notebooks, methods and API in figures/site; it needs no network: PROFILE=quick
	@$(PY) -m fedlib.tools.site build --profile $(PROFILE)

slides: $(FOR_NOTEBOOKS)  ## Make slides of the executed notebooks in figures/<profile>/slides; a browser shows them, with a network
	@$(PY) -m fedlib.tools.slides figures/$(PROFILE)

methods: $(FOR_TEST)  ## Write the table of methods in fedlib/methods/README.md from their files and tests
	@$(PY) -m fedlib.tools.site methods

bench: $(FOR_NOTEBOOKS)  ## Measure the training speed of this machine; PEERS=<folder with checkouts of FL-bench and PFLlib> compares other libraries
	@$(PY) -m fedlib.tools.bench $(if $(PEERS),--peers '$(PEERS)')

diff: $(FOR_NOTEBOOKS)  ## Compare executed notebooks cell by cell: make diff A=figures/quick B=/another/figures/quick
	@[ -n "$(B)" ] || { echo "Say what to compare: make diff A=figures/quick B=/another/figures/quick." >&2; exit 2; }
	@$(PY) -m fedlib.tools.diff '$(A)' '$(B)'

# git runs these from any folder and without .venv in its path, so they are named in full.
setup: $(FOR_NOTEBOOKS)  ## Configure git in this clone to diff and merge notebooks cell by cell with nbdime
	@git config diff.jupyternotebook.command '"$(abspath $(VENV))/bin/git-nbdiffdriver" diff'
	@git config merge.jupyternotebook.name 'notebooks, merged by nbdime'
	@git config merge.jupyternotebook.driver '"$(abspath $(VENV))/bin/git-nbmergedriver" merge %O %A %B %L %P'
	@git config difftool.nbdime.cmd '"$(abspath $(VENV))/bin/git-nbdifftool" diff "$$LOCAL" "$$REMOTE" "$$BASE"'
	@git config mergetool.nbdime.cmd '"$(abspath $(VENV))/bin/git-nbmergetool" merge "$$BASE" "$$LOCAL" "$$REMOTE" "$$MERGED"'
	@echo "git diff and git merge show notebooks cell by cell in this clone; git difftool --tool nbdime shows them rendered."

lint: $(FOR_TEST)  ## Check style, docstrings, formatting (also of notebooks) and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PY) -m pyright --pythonpath $(PY)

strip: $(FOR_NOTEBOOKS)  ## Remove the outputs from the notebooks in notebooks/ (before a commit)
	@$(PY) -m jupyter nbconvert --log-level=WARN --clear-output --inplace notebooks/*.ipynb

lock:  ## Update requirements.lock from pyproject.toml (delete it first to update every pin)
	@$(PYTHON) -m venv .venv-lock && .venv-lock/bin/python -m pip install --quiet uv
	@.venv-lock/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --extra test --no-annotate \
	  --custom-compile-command "make lock" --output-file requirements.lock pyproject.toml
	@rm -rf .venv-lock
	@echo "requirements.lock pins $$(grep -c == requirements.lock) packages."

# A wheel is built from the sdist. cffconvert writes what Software Heritage and others read beside CITATION.cff.
RELEASE = .venv-release/bin
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
release:  ## Make wheel, sdist, site, data set and archive of the evidence in dist/ and check them; nothing is tagged, signed or uploaded
	@! git status --porcelain 2>&1 | grep . || { echo "A release is made from a commit without further changes." >&2; exit 1; }
	@$(MAKE) figures site dataset
	@rm -rf dist && $(PYTHON) -m venv --clear .venv-release
	@$(RELEASE)/python -m pip install --quiet build cffconvert check-wheel-contents mlcroissant twine validate-pyproject
	@$(RELEASE)/validate-pyproject pyproject.toml
	@$(RELEASE)/cffconvert --validate
	@$(RELEASE)/mlcroissant validate --jsonld figures/dataset/croissant.json
	@$(RELEASE)/python -m build
	@$(RELEASE)/twine check --strict dist/*
	@$(RELEASE)/check-wheel-contents dist/*.whl
	@$(RELEASE)/cffconvert --format codemeta --outfile dist/codemeta.json
	@tar -czf dist/fedlib-site-$(VERSION).tar.gz -C figures site
	@tar -czf dist/fedlib-dataset-$(VERSION).tar.gz -C figures dataset
	@git archive --prefix=fedlib-evidence-$(VERSION)/ --output=dist/fedlib-evidence-$(VERSION).tar.gz HEAD \
	  figures/reference CITATION.cff LICENSE
	@rm -rf .venv-release && ls -l dist

clean:  ## Remove caches, the site, the data set, and the smoke and quick figures; keep figures/paper, figures/reference, .venv and runs
	@rm -rf figures/smoke figures/quick figures/site figures/dataset build dist .venv-lock .venv-release .pytest_cache .ruff_cache .hypothesis
	@find fedlib notebooks tests \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

distclean: clean  ## As clean; also remove .venv and the runs in this folder
	@rm -rf $(VENV) runs

# The stamp of an extra is written last; an installation that was interrupted starts anew at the next call.
$(VENV)/.installed-%: requirements.lock
	@command -v $(PYTHON) >/dev/null || \
	  { echo "There is no $(PYTHON) here: say which Python to use, for example make figures PYTHON=python3.12." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("fedlib needs Python 3.11 or newer, and $(PYTHON) is %d.%d: say which one to use, for example make figures PYTHON=python3.12." % sys.version_info[:2])'
	@[ -z "$(filter-out cpu,$(TORCH))" ] || { echo "TORCH=$(TORCH) is unknown; allowed: cpu." >&2; exit 2; }
	@echo "Installing fedlib for $* into $(VENV) (once; $(if $(TORCH),PyTorch without CUDA,minutes; on Linux 7 GB, with TORCH=cpu 2 GB)) ..."
	@ls $(VENV)/.installed-* >/dev/null 2>&1 && [ ! -f $(VENV)/.installing ] || $(PYTHON) -m venv --clear $(VENV) || \
	  { echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu install python3-venv." >&2; exit 1; }
	@touch $(VENV)/.installing
	$(if $(TORCH),$(call INSTALL,--no-deps --index-url $(TORCH_CPU) --constraint requirements.lock torch torchvision))
	$(call INSTALL,--constraint requirements.lock --editable '.[$*]')
	@rm $(VENV)/.installing
	@touch $@
