package house_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSupportTable: the README's table of Kubernetes' releases has a row for each go.mod with which
// scripts/kube-binaries.sh builds one, with its etcd, and with the modules that module kube is tested
// with; scripts/matrix.sh runs each of them, and every module takes the Go that the README names.
func TestSupportTable(t *testing.T) {
	none(t, supportProblems(t, "."))
}

func TestSupportTableBites(t *testing.T) {
	const readme = "| Go | Go 1.26; the newest |\n" +
		"| v1.35.4 | v3.6.5 | tested | k8s.io v0.36.3, controller-runtime v0.24.1 |\n" +
		"| v1.36.3 | v3.6.8 | tested | k8s.io v0.36.3, controller-runtime v0.24.1 |\n" +
		"| v1.37.2 | v3.7.0 | tested | k8s.io v0.36.3, controller-runtime v0.24.1; k8s.io v0.37.2, controller-runtime v0.25.2 |\n"
	const matrix = "[ $# -ne 0 ] || set -- v1.35.4 v1.36.3 v1.37.2 v1.37.2/v1.35.4\n"
	programs := func(kubernetes, etcd string) string {
		return "module " + modulePath + "/test/kubernetes\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes " + kubernetes + "\n\tgo.etcd.io/etcd/server/v3 " + etcd + " // indirect\n)\n"
	}
	library := func(api, runtime string) string {
		return "module " + modulePath + "/kube\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/api " + api + "\n\tsigs.k8s.io/controller-runtime " + runtime + "\n)\n"
	}
	for _, tt := range []struct {
		name, file, old, new string
		want                 []string
	}{
		{"good", "README.md", "", "", nil},
		{"another Go", "README.md", "Go 1.26;", "Go 1.25;",
			[]string{"go.mod has go 1.26,", "kube/go.mod has go 1.26.0", "kube/go137.mod has go 1.26.0", "kubernetes/go.mod has go 1.26.0", "kubernetes/go135.mod has go 1.26.0", "kubernetes/go137.mod has go 1.26.0"}},
		{"no row", "README.md", "| v1.35.4 |", "| v1.35.3 |", []string{"no row of Kubernetes v1.35.4", "v1.35.3, which no go.mod"}},
		{"another etcd", "README.md", "| v3.7.0 |", "| v3.6.8 |", []string{"the row of v1.37.2 does not have v3.7.0"}},
		{"other modules", "README.md", "v1.36.3 | v3.6.8 | tested | k8s.io v0.36.3", "v1.36.3 | v3.6.8 | tested | k8s.io v0.36.2",
			[]string{"the row of v1.36.3 does not have k8s.io v0.36.3, controller-runtime v0.24.1"}},
		{"only the older modules", "README.md", "; k8s.io v0.37.2, controller-runtime v0.25.2", "", []string{"the row of v1.37.2 does not have k8s.io v0.37.2, controller-runtime v0.25.2"}},
		{"not in the matrix", "scripts/matrix.sh", " v1.36.3 ", " ", []string{"scripts/matrix.sh does not run v1.36.3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{
				"README.md": readme, "scripts/matrix.sh": matrix,
				"test/kubernetes/go.mod": programs("v1.36.3", "v3.6.8"), "test/kubernetes/go135.mod": programs("v1.35.4", "v3.6.5"), "test/kubernetes/go137.mod": programs("v1.37.2", "v3.7.0"),
				"kube/go.mod": library("v0.36.3", "v0.24.1"), "kube/go137.mod": library("v0.37.2", "v0.25.2"),
			}
			if !strings.Contains(files[tt.file], tt.old) {
				t.Fatalf("%s has no %q", tt.file, tt.old)
			}
			files[tt.file] = strings.Replace(files[tt.file], tt.old, tt.new, 1)
			exactly(t, supportProblems(t, fixture(t, files)), tt.want...)
		})
	}
}

func supportProblems(t *testing.T, root string) (problems []string) {
	t.Helper()
	readme := readFile(t, filepath.Join(root, "README.md"))
	problems = goProblems(t, root, readme)
	_, matrix, _ := strings.Cut(readFile(t, filepath.Join(root, "scripts", "matrix.sh")), "|| set -- ")
	matrix, _, _ = strings.Cut(matrix, "\n")

	rows := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (v1\.\d+\.\d+) \|.*$`).FindAllStringSubmatch(readme, -1) {
		rows[row[1]] = row[0]
	}
	for _, file := range modFiles(t, filepath.Join(root, "test", "kubernetes")) {
		release := version(t, file, "k8s.io/kubernetes")
		row, found := rows[release]
		if !found {
			problems = append(problems, "README.md: no row of Kubernetes "+release)
			continue
		}
		delete(rows, release)
		want := []string{version(t, file, "go.etcd.io/etcd/server/v3"), kubeModules(t, filepath.Join(root, "kube", "go.mod"))}
		if newer := filepath.Join(root, "kube", filepath.Base(file)); filepath.Base(file) != "go.mod" && slices.Contains(modFiles(t, filepath.Dir(newer)), newer) {
			want = append(want, kubeModules(t, newer))
		}
		for _, w := range want {
			if !strings.Contains(row, w) {
				problems = append(problems, fmt.Sprintf("README.md: the row of %s does not have %s", release, w))
			}
		}
		if !slices.Contains(strings.Fields(matrix), release) {
			problems = append(problems, "scripts/matrix.sh does not run "+release)
		}
	}
	for release := range rows {
		problems = append(problems, "README.md: a row of "+release+", which no go.mod of test/kubernetes requires")
	}
	return problems
}

// goProblems are those of modules that take another Go than the README names.
func goProblems(t *testing.T, root, readme string) (problems []string) {
	t.Helper()
	named := regexp.MustCompile(`(?m)^\| Go \| Go (\d+\.\d+)`).FindStringSubmatch(readme)
	if named == nil {
		return []string{"README.md: no row of Go"}
	}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isModFile(d.Name()) {
			return err
		}
		takes := regexp.MustCompile(`(?m)^go (\d+\.\d+)(?:\.\d+)?$`).FindStringSubmatch(readFile(t, name))
		if takes == nil || takes[1] != named[1] {
			problems = append(problems, fmt.Sprintf("%s has %s, README.md Go %s", name, strings.Join(takes[:min(1, len(takes))], ""), named[1]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return problems
}

func isModFile(name string) bool { return regexp.MustCompile(`^go\d*\.mod$`).MatchString(name) }

// modFiles are the go.mod files of a folder's module.
func modFiles(t *testing.T, folder string) (files []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "go*.mod"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no go.mod in %s: %v", folder, err)
	}
	return all
}

// version is that of a module in a go.mod.
func version(t *testing.T, file, module string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(readFile(t, file))
	if m == nil {
		t.Fatalf("%s requires no version of %s", file, module)
	}
	return m[1]
}

// kubeModules are what a go.mod of module kube requires, as the README has it.
func kubeModules(t *testing.T, file string) string {
	t.Helper()
	return "k8s.io " + version(t, file, "k8s.io/api") + ", controller-runtime " + version(t, file, "sigs.k8s.io/controller-runtime")
}
