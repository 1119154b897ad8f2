package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/nodeattest/nodeattest/"

// rooms are the folders that stand for themselves, though they are in another.
var rooms = []string{"internal/testkit", "attest/attesttest"}

// everywhere may be imported by every package, and is left out.
var everywhere = []string{"recovered", "refusal", "secret"}

// An arrow leads from a folder to one that it imports.
type arrow struct{ from, to string }

// imports draws which folders of the repository at root import which, by layers. Packages below a
// folder count as that folder, and tests are not looked at.
func imports(root string) (string, error) {
	arrows := map[arrow]int{}
	for _, dir := range []string{".", "attest/tpm/goattestation", "kube", "kube/boundtokens/grpc", "externalsigner"} {
		cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
		cmd.Dir, cmd.Stderr = filepath.Join(root, dir), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("go list in %s: %w", dir, err)
		}
		count(arrows, string(out))
	}
	return draw(arrows), nil
}

// count adds the imports in go list's lines: a package, and its imports.
func count(arrows map[arrow]int, list string) {
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		from := room(fields[0])
		for _, imported := range fields[1:] {
			if to := room(imported); from != "" && to != "" && from != to {
				arrows[arrow{from, to}]++
			}
		}
	}
}

// room is the folder that a package counts as; "" for one that is not drawn.
func room(importPath string) string {
	path, ours := strings.CutPrefix(importPath, module)
	if !ours || slices.Contains(everywhere, path) {
		return ""
	}
	for _, r := range rooms {
		if path == r || strings.HasPrefix(path, r+"/") {
			return r
		}
	}
	first, _, _ := strings.Cut(path, "/")
	return first
}

// climbing takes the fewest imports away after which no folder imports itself by way of
// others, and returns the arrows that it took.
func climbing(arrows map[arrow]int) (taken []arrow) {
	left := maps.Clone(arrows)
	for {
		var circle []arrow
		for a := range left {
			if reaches(left, a.to, a.from, map[string]bool{}) {
				circle = append(circle, a)
			}
		}
		if circle == nil {
			return taken
		}
		lightest := slices.MinFunc(circle, func(a, b arrow) int {
			return cmp.Or(cmp.Compare(left[a], left[b]), strings.Compare(a.from+" "+a.to, b.from+" "+b.to))
		})
		taken = append(taken, lightest)
		delete(left, lightest)
	}
}

func reaches(arrows map[arrow]int, from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	seen[from] = true
	for a := range arrows {
		if a.from == from && !seen[a.to] && reaches(arrows, a.to, to, seen) {
			return true
		}
	}
	return false
}

// draw writes a line for each folder, with its imports. A folder's layer is one above
// the highest that it imports.
func draw(arrows map[arrow]int) string {
	up := climbing(arrows)
	layers := map[string]int{}
	var layer func(string) int
	layer = func(folder string) int {
		if n, done := layers[folder]; done {
			return n
		}
		n := 0
		for a := range arrows {
			if a.from == folder && !slices.Contains(up, a) {
				n = max(n, 1+layer(a.to))
			}
		}
		layers[folder] = n
		return n
	}
	below, width := map[string][]string{}, 0
	for a := range arrows {
		layer(a.from)
		layer(a.to)
		below[a.from] = append(below[a.from], a.to)
		width = max(width, len(a.from), len(a.to))
	}
	folders := slices.SortedFunc(maps.Keys(layers), func(a, b string) int {
		return cmp.Or(cmp.Compare(layers[b], layers[a]), strings.Compare(a, b))
	})
	var out strings.Builder
	last := -1
	for _, folder := range folders {
		mark := "  "
		if layers[folder] != last {
			last = layers[folder]
			mark = fmt.Sprintf("%-2d", last)
		}
		slices.Sort(below[folder])
		for i, to := range below[folder] {
			if slices.Contains(up, arrow{folder, to}) {
				below[folder][i] = "^" + to
			}
		}
		fmt.Fprintln(&out, strings.TrimRight(fmt.Sprintf("%s %-*s  %s", mark, width, folder, strings.Join(below[folder], " ")), " "))
	}
	fmt.Fprintf(&out, "%d folders, %d layers, %d arrows, of which %d climb (^)\n", len(folders), 1+slices.Max(slices.Collect(maps.Values(layers))), len(arrows), len(up))
	return out.String()
}
