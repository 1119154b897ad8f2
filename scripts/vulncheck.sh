#!/bin/bash
# vulncheck.sh FOLDER... looks with govulncheck for known vulnerabilities in the modules of
# the folders. It fails for one in code that is called, unless it is accepted below.
#
# The database is https://vuln.go.dev, or the mirror that GOVULNDB names. Where it cannot be
# reached a snapshot stands in: NODEATTEST_VULNDB names a folder that is a database itself
# (govulncheck -db file://FOLDER) and has a file `date` with its day, as scripts/vulndb.sh
# writes it. One that is older than 90 days is not used. Without a database nothing is known,
# which is said, and fails under NO_SKIPS=1.
#
# A vulnerability of the standard library is one of the Go that is used here, of which no
# module of ours decides: it is named with the release that mends it, and fails nothing.
# Programs have to be built with that one.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export GOWORK=off

# Vulnerabilities that are known and accepted, each with its reason:
#   GO-2026-5298  go-attestation, only in attest/tpm/goattestation and only v0.6.4: that version has
#                 the fix (pull request 502, commit b6e905e), but the entry, which is not reviewed,
#                 names no fixed version, and no symbols, so that every importer is reported. With
#                 the faulty function alone as symbol this module is not reported: it never parses
#                 an event log there (TestVulnerabilities). Delete this when the entry names a version.
#   GO-2026-6061, GO-2026-6348, GO-2026-6443  grpc, only in test/kubernetes: that module
#                 builds the Kubernetes that tests run, with the versions that Kubernetes
#                 itself has, and nothing of it is in what we release.
accepted_of_kubernetes='GO-2026-6061|GO-2026-6348|GO-2026-6443'
accepted_of_goattestation='GO-2026-5298 github\.com/google/go-attestation github\.com/google/go-attestation@v0\.6\.4 N/A'

max_days=90
log=$(mktemp)
trap 'rm -f "$log"' EXIT

govulncheck=$(go tool -modfile="$root/tools/go.mod" -n govulncheck)

# fresh NAME DAY fails, and says why, unless the day is one of the last max_days.
fresh() {
	local start days
	if ! [[ $2 =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] || ! start=$(date -u -d "$2" +%s); then
		echo "vulncheck: $1: its date is '$2', want YYYY-MM-DD"
		return 1
	fi
	days=$((($(date -u +%s) - start) / 86400))
	if [ "$start" -gt "$(date -u +%s)" ] || [ "$days" -gt "$max_days" ]; then
		echo "vulncheck: $1: it is of $2, $days days old, want at most $max_days"
		return 1
	fi
	echo "vulncheck: $1, of $2"
}

# choose sets db to a database that can be read and is fresh, or fails and says why.
choose() {
	local url=${GOVULNDB:-https://vuln.go.dev} day
	if [[ $url == file:* ]]; then
		echo "vulncheck: GOVULNDB is $url: a folder is named by NODEATTEST_VULNDB, for it has a date"
		return 1
	fi
	day=$("$govulncheck" -db "$url" -version | sed -n 's/^DB updated: \([^ ]*\).*/\1/p')
	if [ -n "$day" ]; then
		db=$url
		fresh "database $url" "$day"
		return
	fi
	echo "vulncheck: database $url: cannot be reached"
	if [ -z "${NODEATTEST_VULNDB:-}" ]; then
		echo 'vulncheck: no snapshot: NODEATTEST_VULNDB names none (scripts/vulndb.sh makes one)'
		return 1
	fi
	db=file://$(realpath -m "$NODEATTEST_VULNDB")
	fresh "snapshot $NODEATTEST_VULNDB" "$(cat "$NODEATTEST_VULNDB/date" 2>/dev/null)"
}

# findings prints a line for each vulnerability in govulncheck's text: its number, the
# module (std for the standard library), where it is and where it is mended.
findings() {
	awk '
		/^Vulnerability #/ { id = $3; module = "" }
		/^  Standard library$/ { module = "std" }
		/^  Module: / { module = $2 }
		/^    Found in: / { found = $3 }
		/^    Fixed in: / { print id, module, found, $3 }
	' "$log" | sort -u
}

# check FOLDER fails for findings that are neither accepted nor of the standard library.
check() {
	local status=0 found bad accepted=none
	case $1 in
	./test/kubernetes) accepted=$accepted_of_kubernetes ;;
	./attest/tpm/goattestation) accepted=$accepted_of_goattestation ;;
	esac
	(cd "$1" && "$govulncheck" -db "$db" ./...) >"$log" 2>&1 || status=$?
	if [ "$status" = 0 ]; then
		echo "vulncheck: $1: ok"
		return
	fi
	found=$(findings)
	bad=$(echo "$found" | grep -v -E "^($accepted)( |$)|^GO-[0-9-]* std " || true)
	# 3 is for findings. Another status, or findings that are not understood, is a failure.
	if [ "$status" != 3 ] || [ -n "$bad" ] || [ -z "$found" ] ||
		[ "$(echo "$found" | cut -d' ' -f1 | sort -u | wc -l)" != "$(grep -c '^Vulnerability #' "$log")" ]; then
		echo "vulncheck: $1: FAILED"
		sed 's/^/    /' "$log"
		return 1
	fi
	echo "vulncheck: $1: ok, accepted: $(echo "$found" | grep -v ' std ' | cut -d' ' -f1 | xargs)"
	found=$(echo "$found" | grep ' std ' || true)
	[ -z "$found" ] || printf '    of this Go, mended in %s: %s\n' \
		"$(echo "$found" | sed 's/.*@//' | sort -V | tail -n 1)" "$(echo "$found" | cut -d' ' -f1 | sort -u | xargs)"
}

if ! choose; then
	echo 'vulncheck: NOT CHECKED'
	[ "${NO_SKIPS:-}" != 1 ]
	exit
fi
failed=
for folder in "$@"; do
	check "$folder" || failed=yes
done
[ -z "$failed" ]
