#!/bin/bash
# vulndb.sh FOLDER writes a snapshot of the Go vulnerability database there, for
# vulncheck.sh, where vuln.go.dev cannot be reached but the Go module proxy can: module
# golang.org/x/vulndb, from which the database is made, has its entries. In the folder are
# the entries, one a file, and `date`, the day of the module's version.
set -euo pipefail

folder=$1
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT

said=$(cd "$empty" && go mod download -json golang.org/x/vulndb@latest) || {
	echo "$said" >&2
	exit 1
}
member() { echo "$said" | sed -n "s/^\t\"$1\": \"\(.*\)\",\{0,1\}$/\1/p"; }

# The version is v0.0.0-YYYYMMDDhhmmss-COMMIT.
version=$(member Version)
day=$(echo "$version" | sed -n 's/^v0\.0\.0-\([0-9]\{4\}\)\([0-9][0-9]\)\([0-9][0-9]\)[0-9]\{6\}-.*/\1-\2-\3/p')
if [ -z "$day" ]; then
	echo "vulndb: golang.org/x/vulndb $version: a version that names no day" >&2
	exit 1
fi
mkdir -p "$folder"
find "$folder" -name 'GO-*.json' -delete
find "$(member Dir)/data/osv" -name 'GO-*.json' -exec cp -t "$folder" {} +
echo "$day" >"$folder/date"
echo "vulndb: $(find "$folder" -name 'GO-*.json' | wc -l) entries of $day in $folder"
