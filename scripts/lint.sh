#!/bin/bash
# lint.sh runs every check of the sources that needs no long test: the messages of commits,
# and formatting, shellcheck, the links of doc comments, Pod Security of the manifests,
# golangci-lint (.golangci.yml says what that looks for; go vet and staticcheck are part of
# it), go mod tidy and known vulnerabilities (vulncheck.sh), in every module of the
# repository. It runs them all and fails if any did.
set -euo pipefail
export GOWORK=off
cd "$(dirname "$0")/.."
root=$PWD

# The version of golangci-lint is that of tools/go.mod.
tool() { go tool -modfile="$root/tools/go.mod" "$@"; }

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

# shell looks at all scripts, also where nothing runs them.
shell() { git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck; }

# generated makes the generated files again: they must stay what they are.
generated() {
	local before
	before=$(git diff) && scripts/generate.sh || return 1
	if [ "$(git diff)" != "$before" ]; then
		echo 'make generate writes something else:'
		git diff --stat
		return 1
	fi
}

# commits is check, but says how much there was to check.
commits() {
	if scripts/commits.sh >"$log" 2>&1; then
		echo "lint: commit messages: $(cat "$log")"
	else
		fail 'commit messages'
	fi
}

check gofmt formatted
check 'generated files' generated
check shellcheck shell
check 'links of doc comments' go -C test test -run '^TestDocLinks' ./house
check 'Pod Security of the manifests' go -C test/kubernetes test ./manifests
check 'words' go run -C tools ./words ..
commits
modules=()
while read -r file; do
	module=$(dirname "$file")
	cd "$root/$module"
	if [ -n "$(go list ./... 2>/dev/null)" ]; then
		check "golangci-lint in $module" tool golangci-lint run ./...
		modules+=("$module")
	fi
	check "go mod tidy in $module" go mod tidy -diff
	for other in go[0-9]*.mod; do # of the same sources with another release
		[ ! -e "$other" ] || check "go mod tidy in $module of $other" go mod tidy -diff -modfile="$other"
	done
done < <(find . -name go.mod -not -path './.git/*' | sort)
cd "$root"
scripts/vulncheck.sh "${modules[@]}" || failed+=(govulncheck)

if [ "${#failed[@]}" -ne 0 ]; then
	printf 'lint: failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
