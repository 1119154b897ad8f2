package deploy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// roles are the roles in the folder's files, each with the folder of its component, if it is of one.
func roles(t *testing.T) map[string][]rbacv1.Role {
	t.Helper()
	found := map[string][]rbacv1.Role{}
	var names []string
	for _, pattern := range []string{"*.yaml", "*/*.yaml"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, more...)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for manifest := range bytes.SplitSeq(text, []byte("\n---\n")) {
			if !bytes.Contains(manifest, []byte("Role\n")) {
				continue
			}
			var role rbacv1.Role // a ClusterRole has no namespace
			if err := yaml.Unmarshal(manifest, &role); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if role.Kind == "Role" || role.Kind == "ClusterRole" {
				component := strings.TrimPrefix(filepath.Dir(name), ".")
				found[component] = append(found[component], role)
			}
		}
	}
	return found
}

// TestRightsPage: docs/architecture.md has a row for each rule of each role, under the heading of
// the role's subject, and no other row.
func TestRightsPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("^\\| ([a-z, ]+) \\| `(.*)` \\| ([A-Za-z' -]+) \\| ([a-z-]*) ?\\| .+ \\|$")
	names := strings.NewReplacer("${NAMESPACE}", "the Cluster's", "${CLUSTER_NAME}", "CLUSTER")
	var written, want, holders []string
	_, rights, _ := strings.Cut(string(page), "\n## Rights\n")
	for line := range strings.Lines(rights) {
		line = strings.TrimSuffix(line, "\n")
		if heading, ok := strings.CutPrefix(line, "### "); ok {
			holders = append(holders, heading)
		}
		if r := row.FindStringSubmatch(line); r != nil {
			written = append(written, strings.Join(append([]string{holders[len(holders)-1]}, r[1:]...), "; "))
		}
	}
	for component, roles := range roles(t) {
		for _, role := range roles {
			n := slices.IndexFunc(holders, func(h string) bool { return strings.HasPrefix(role.Name, h) })
			if n < 0 {
				t.Errorf("no heading for %s", role.Name)
				continue
			}
			namespace := role.Namespace
			if role.Kind == "ClusterRole" {
				namespace = "cluster"
			}
			for _, rule := range role.Rules {
				on := strings.Join(rule.Resources, ", ")
				if len(rule.ResourceNames) != 0 {
					on += ": " + strings.Join(rule.ResourceNames, ", ")
				}
				want = append(want, names.Replace(fmt.Sprintf("%s; %s; %s; %s; %s", holders[n], strings.Join(rule.Verbs, ", "), on, namespace, component)))
			}
		}
	}
	slices.Sort(written)
	slices.Sort(want)
	if got := slices.Compact(slices.Clone(written)); len(got) != len(written) || len(want) < 30 {
		t.Errorf("%d rows, %d of them different; %d rules", len(written), len(got), len(want))
	}
	for _, w := range written {
		if !slices.Contains(want, w) {
			t.Errorf("the page has what no rule allows: %s", w)
		}
	}
	for _, w := range want {
		if !slices.Contains(written, w) {
			t.Errorf("the page has no %s", w)
		}
	}
}
