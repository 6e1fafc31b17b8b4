# The front door. Everything is built by CMake; these are the things that one does.
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
DDP_PYTHON ?= python3
PREFIX ?= /usr/local
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DEFAULT_GOAL := all

.PHONY: all demo check check-build check-full bench results measured fuzz coverage tidy format install clean

all: ## build/espalier and build/libespalier.so
	@tools/install_deps build
	cmake --preset release >/dev/null
	cmake --build --preset release -j $(JOBS)

demo: all ## plan one model for one small cluster
	@set -x
	build/espalier plan models/vgg19.onnx -c clusters/testbed.yaml --batch 96 \
	    -o build/plan.json
	build/espalier simulate build/plan.json --trace build/trace.json --quiet

check: check-build ## sanitized debug build, every test, the layer, licence, symbol and format rules
	ctest --preset dev -j $(JOBS)

check-build:
	@tools/install_deps check
	cmake --preset dev >/dev/null
	cmake --build --preset dev -j $(JOBS)

check-full: check ## and optimised, thread-sanitized, static analysis, short fuzzing
	@tools/install_deps full
	cmake --preset release -B build-check -DESP_TESTS=ON >/dev/null
	cmake --build build-check -j $(JOBS)
	ESP_FULL=1 ESP_EMULATED=full ESP_KILLS=50 ctest --test-dir build-check --output-on-failure -j $(JOBS)
	cmake --preset thread >/dev/null
	cmake --build --preset thread -j $(JOBS)
	ctest --preset thread -j $(JOBS)
	cmake --build --preset dev -j $(JOBS) --target tidy
	$(MAKE) fuzz FUZZ_SECONDS=20

bench: ## every bench program, optimised; the figures also go to bench/results.json
	@tools/install_deps build
	cmake --preset release >/dev/null
	cmake --build --preset release -j $(JOBS)
	cmake --build --preset release -j $(JOBS) --target benches
	rm -f build/bench.jsonl
	for program in build/bench_*; do
	    if [ -x "$$program" ]; then
	        echo "== $${program#build/}"
	        "$$program" --out build/bench.jsonl
	    fi
	done
	tools/merge_json_lines build/bench.jsonl >bench/results.json

results: all ## docs/results.md: every shipped model on every shipped cluster (half an hour)
	cmake --build --preset release -j $(JOBS) --target results_table
	build/results_table --source . --out docs/results.md

measured: all ## docs/results.md, the measured part: on an emulated cluster, as root (25 minutes)
	tools/measure_table --espalier build/espalier --log build/measured.jsonl --work build/measured \
	    --ddp $(DDP_PYTHON) --results docs/results.md

fuzz: ## each fuzz target for FUZZ_SECONDS, from its corpus
	@tools/install_deps full
	cmake --preset fuzz >/dev/null
	cmake --build --preset fuzz -j $(JOBS)
	for program in build-fuzz/fuzz_*; do
	    if [ ! -x "$$program" ]; then continue; fi
	    name=$${program#build-fuzz/fuzz_}
	    mkdir -p "build-fuzz/corpus/$$name" "fuzz/corpus/$$name"
	    echo "== fuzz_$$name"
	    log=build-fuzz/$$name.log
	    if ! "$$program" -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 -timeout=10 \
	        -artifact_prefix=build-fuzz/ "build-fuzz/corpus/$$name" \
	        "fuzz/corpus/$$name" 2>"$$log"; then tail -n 60 "$$log"; exit 1; fi
	    { grep "^Done" "$$log" || true; }
	done

coverage: ## line and branch coverage of the tests
	@tools/install_deps full
	cmake --preset coverage >/dev/null
	cmake --build --preset coverage -j $(JOBS)
	ctest --preset coverage -j $(JOBS)
	gcovr -r . --object-directory build-coverage --filter 'src/' --exclude-unreachable-branches \
	    --print-summary

tidy: ## clang-tidy
	@tools/install_deps full
	cmake --preset dev >/dev/null
	cmake --build --preset dev -j $(JOBS) --target tidy -- -k 0

format: ## clang-format, in place
	@tools/install_deps check
	tools/check_format --fix

install: all ## to PREFIX, or under DESTDIR
	cmake --install build --prefix $(PREFIX)

clean:
	rm -rf build build-*
