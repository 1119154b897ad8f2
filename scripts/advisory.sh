#!/bin/bash
# advisory.sh PROGRAM... fails unless an advisory on any module of ours that is in a program
# would be found there. Scanners look up the modules and versions that a program records: one
# that a folder replaced, or that has no version, is passed over without a word. So is, by
# govulncheck, whatever is in a program without symbols (-ldflags -s).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export GOWORK=off
db=$(mktemp -d)
trap 'rm -rf "$db"' EXIT
govulncheck=$(cd "$root" && go tool -modfile=tools/go.mod -n govulncheck)
ours=github.com/nodeattest/nodeattest
failed=

for program in "$@"; do
	modules=$(go version -m "$program" | awk -v ours="$ours" '($1 == "mod" || $1 == "dep") && index($2 "/", ours "/") == 1 { print $2 }')
	[ -n "$modules" ] || {
		echo "advisory: $program: no module of ours is in it"
		failed=yes
	}
	for module in $modules; do
		rm -f "$db"/*
		cat >"$db/GO-2099-0001.json" <<-END
			{"schema_version": "1.3.1", "id": "GO-2099-0001", "modified": "2026-01-01T00:00:00Z", "summary": "Made up",
			"affected": [{"package": {"name": "$module", "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}]}],
			"database_specific": {"url": "https://pkg.go.dev/vuln/GO-2099-0001"}}
		END
		status=0
		said=$("$govulncheck" -mode binary -db "file://$db" "$program" 2>&1) || status=$?
		case $status in
		3) echo "advisory: $program: one on $module is found" ;;
		0)
			echo "advisory: $program: one on $module is NOT FOUND"
			failed=yes
			;;
		*)
			echo "advisory: $program: $said"
			failed=yes
			;;
		esac
	done
done
[ -z "$failed" ]
