# Everything a newcomer needs; `make help` lists it. The build itself is CMake's (CMakePresets.json).
.DEFAULT_GOAL := help
.PHONY: help serve run test build cuda setup format check tidy asan tsan clients page fuzz clean

# Seconds for each fuzz target, and the tests that run under ThreadSanitizer (a regular expression on ctest's names).
FUZZ_SECONDS ?= 30
TSAN_TESTS ?= base|parallel|kernels|engine|server

# GPU architectures that `make cuda` compiles for: 80 is for every GPU from Ampere on, the others add what only those can do.
RECKONER_CUDA_ARCHS ?= 80;90a;120a

# The prompt reaches the program through the environment, as typed: neither make nor the shell reads quotes or $ in it.
export RECKONER_PROMPT := $(value PROMPT)
unexport PROMPT

# The cargo that tools/setup chose comes first on the path.
with_cargo = PATH="$$(tools/setup --cargo-dir):$$PATH"
configure = [ -f build/$(1)/build.ninja ] || $(with_cargo) cmake --preset $(1)
compile = $(with_cargo) cmake --build --preset $(1)
cxx_files = find src tests bench -name target -prune -o \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' \) -print0

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done

serve: build ## serve the bundled model over HTTP and print the address
	@exec build/release/reckoner serve models/pocket

run: build ## chat with the bundled model; PROMPT="Define lantern." asks once
	@if [ -n "$$RECKONER_PROMPT" ]; then exec build/release/reckoner run models/pocket -- "$$RECKONER_PROMPT"; \
	else exec build/release/reckoner run models/pocket; fi

test: build ## run every test
	@ctest --preset release -j "$$(nproc)"

build: setup ## build build/release/reckoner and the tests
	@$(call configure,release)
	@$(call compile,release)

cuda: build ## build the CUDA backend too: build/release/reckoner_cuda.so
	@$(with_cargo) cmake --preset release -DRECKONER_CUDA=ON "-DRECKONER_CUDA_ARCHS=$(RECKONER_CUDA_ARCHS)"
	@$(call compile,release) --target reckoner reckoner_cuda
	@tools/check_cuda_report build/release

setup: ## install the compilers and libraries that are missing
	@tools/setup

format: ## format the C++ code in place
	@tools/setup --checks
	@$(cxx_files) | xargs -0 -r clang-format -i

check: ## check formatting, layers and the objects built for newer CPUs
	@tools/setup --checks
	@$(cxx_files) | xargs -0 -r clang-format --dry-run -Werror
	@tools/check_layers --self-test
	@tools/check_layers
	@if [ -d build/release ]; then tools/check_isa_objects build/release; fi

tidy: build ## run clang-tidy over all C++ code (minutes)
	@tools/setup --checks
	@tools/tidy_commands build/release
	@run-clang-tidy -quiet -p build/tidy "$(CURDIR)/(src|tests|bench)/"

asan: setup ## run the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(call configure,asan)
	@$(call compile,asan)
	@ctest --preset asan -j "$$(nproc)"

tsan: setup ## run the tests with threads (TSAN_TESTS) under ThreadSanitizer
	@$(call configure,tsan)
	@$(call compile,tsan) --target help > /dev/null  # brings the list of tests up to date
	@tools/ctest_targets build/tsan '$(TSAN_TESTS)' | $(with_cargo) xargs -r cmake --build --preset tsan --target
	@ctest --preset tsan -R '$(TSAN_TESTS)'

clients: build ## run the official OpenAI and Anthropic clients, replicas behind a gateway and a short soak
	@tools/check_clients

page: build ## use the server's page in headless Chromium
	@tools/check_page

fuzz: ## run each fuzz target for FUZZ_SECONDS
	@tools/setup --checks
	@$(with_cargo) tools/fuzz $(FUZZ_SECONDS)

clean: ## remove everything that was built
	rm -rf build
