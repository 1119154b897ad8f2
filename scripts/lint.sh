#!/bin/bash
# lint.sh runs every check of the sources that needs no test: the messages of commits, and
# formatting, golangci-lint (.golangci.yml says what that looks for; go vet and staticcheck
# are part of it), govulncheck and go mod tidy, in every module of the repository. It runs
# them all and fails if any did.
set -euo pipefail
export GOWORK=off
cd "$(dirname "$0")/.."
root=$PWD

# The versions of golangci-lint and govulncheck are those of tools/go.mod. govulncheck
# 1.9.0 depends on a module version that module proxies may refuse to serve.
tool() { go tool -modfile="$root/tools/go.mod" "$@"; }

# Vulnerabilities that are known and accepted, each with its reason:
#   GO-2026-5298  go-attestation, no fixed version is named; its maintainers name
#                 0.6.1 (GHSA-9r4w-jg96-92mv) and a later one is in go.mod. Of the
#                 SDK's own code only attest/tpm/eventlog imports it, to parse and replay
#                 event logs, and turns a panic into a refusal; tests and benchmarks
#                 compare with it.
accepted='GO-2026-5298'

failed=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() {
	failed+=("$1")
	echo "lint: $1: FAILED"
	sed 's/^/    /' "$log"
}

check() {
	local name=$1
	shift
	if "$@" >"$log" 2>&1; then
		echo "lint: $name: ok"
	else
		fail "$name"
	fi
}

formatted() {
	local bad
	bad=$("$(go env GOROOT)/bin/gofmt" -l .)
	[ -z "$bad" ] || {
		echo "not formatted: $bad"
		return 1
	}
}

# shell_syntax catches a broken script even where nothing runs it.
shell_syntax() {
	local script
	sh -n scripts/setup.sh || return 1
	for script in scripts/*.sh .ci/run; do
		bash -n "$script" || return 1
	done
}

# generated makes the generated files again: they must stay what they are.
generated() {
	local before
	before=$(git diff) && scripts/generate.sh && [ "$(git diff)" = "$before" ] || {
		echo 'make generate writes something else:'
		git diff --stat
		return 1
	}
}

# commits is check, but says how much there was to check.
commits() {
	if scripts/commits.sh >"$log" 2>&1; then
		echo "lint: commit messages: $(cat "$log")"
	else
		fail 'commit messages'
	fi
}

# vulnerabilities fails on findings in called code, but for the accepted ones. The
# database is on the network: where it cannot be reached nothing is known, which
# is said and is no failure. GOVULNDB names a mirror.
vulnerabilities() {
	local name="govulncheck in $1" found rest
	if tool govulncheck -db "${GOVULNDB:-https://vuln.go.dev}" ./... >"$log" 2>&1; then
		echo "lint: $name: ok"
		return
	fi
	if grep -q 'fetching vulnerabilities' "$log"; then
		echo "lint: $name: NOT CHECKED, the vulnerability database cannot be reached: $(grep -m 1 'fetching vulnerabilities' "$log")"
		return
	fi
	found=$({ grep -o '^Vulnerability #[0-9]*: GO-[0-9-]*' "$log" || true; } | sed 's/.*: //' | sort -u)
	rest=$(echo "$found" | { grep -v -x -E "$accepted" || true; })
	if [ -n "$found" ] && [ -z "$rest" ]; then
		echo "lint: $name: ok, accepted: $(echo "$found" | tr '\n' ' ')"
		return
	fi
	fail "$name"
}

check gofmt formatted
check 'generated files' generated
check 'shell syntax' shell_syntax
commits
while read -r file; do
	module=$(dirname "$file")
	cd "$root/$module"
	if [ -n "$(go list ./... 2>/dev/null)" ]; then
		check "golangci-lint in $module" tool golangci-lint run ./...
		vulnerabilities "$module"
	fi
	check "go mod tidy in $module" go mod tidy -diff
done < <(find . -name go.mod -not -path './.git/*' | sort)

if [ "${#failed[@]}" -ne 0 ]; then
	printf 'lint: failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
