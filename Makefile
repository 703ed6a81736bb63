# The entry points of users and of continuous integration. The last line of a target's output is its
# result; a target that is not built yet prints that and fails.
#
#   make test                  all tests, release build
#   make test PRESET=tsan      release (default), clang, dev, asan-ubsan, tsan
#   make test LABELS=unit      only these labels
#   make check                 format, layers, classes, documents, language, texts, mutants, headers, clang-tidy
#   make docs                  a site of docs/ and the API reference, in build/docs
#   make softroce              real verbs, in a small virtual machine; TEST=demo, SMOKE=1, SHELL=1
#   make plots                 draws docs/pictures again, from the output of weft sim
#   make deb                   Debian packages, in build/deb
#   make package-test          installs them in a clean root, as root, and builds against them there
#   make soak                  tests that take too long for CI; SOAK_MINUTES=60; PARTS="leaks cycles"

PRESET ?= release
LABELS ?=
TARGETS ?=
export PRESET LABELS TARGETS

.DEFAULT_GOAL := help
.PHONY: help setup setup-deb setup-docs setup-softroce build test check demo bench plots docs softroce deb \
	package-test soak

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed -n '1,13p'
	@echo "targets: setup build test check demo bench plots docs softroce deb package-test soak"

setup:
	@PACKAGE_LIST="tools/packages.txt tools/packages-test.txt" tools/setup.sh

build: setup
	@PRESET=release tools/build.sh
	@if [ -x build/release/bin/weft ]; then echo "build: build/release/bin/weft is ready"; \
	 else echo "build: the library is ready; the weft command is not written yet"; exit 1; fi

test: setup
	@tools/test.sh

check: setup
	@tools/check.sh

# Runs the script of a target; fails while the script is missing.
run = if [ -x $(2) ]; then $(2); else echo "$(1): not built yet: $(2) is missing"; exit 1; fi

# Builds only the parts that the demo runs: the library, the plugin and the command.
demo:
	@tools/setup.sh
	@PRESET=release TESTS=OFF tools/build.sh weft_cli
	@$(call run,demo,services/storage/demo.py)

bench: setup
	@PRESET=release tools/build.sh
	@python3 tools/bench.py

plots: setup
	@PRESET=release tools/build.sh weft_cli weft_sim_cli
	@tools/plots.py

setup-docs: setup
	@PACKAGE_LIST=tools/packages-docs.txt tools/setup.sh

docs: setup-docs
	@tools/docs.sh

# SHELL=1 is an option of `make softroce`; make itself would use the value as the name of a shell.
softroce_flags = $(if $(TEST),--test $(TEST)) $(if $(SMOKE),--smoke)
ifeq ($(SHELL),1)
override SHELL := /bin/sh
softroce_flags += --shell
endif

setup-softroce: setup
	@PACKAGE_LIST=tools/packages-softroce.txt tools/setup.sh

softroce: setup-softroce
	@PRESET=release tools/build.sh
	@tools/softroce/run.py $(softroce_flags)

setup-deb: setup
	@PACKAGE_LIST=tools/packages-deb.txt tools/setup.sh

deb: setup-deb
	@tools/deb.sh

package-test: deb
	@tests/package/clean_root.py

soak: setup-deb
	@tools/soak.py $(PARTS)
