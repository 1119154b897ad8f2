package deploy

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/csr"
)

// TestEvidenceLabels compares the label of evidence with the base64 texts that the admission policy
// searches for: the part of its encoding that does not depend on the bytes around it.
func TestEvidenceLabels(t *testing.T) {
	manifests, err := Manifests("admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policy := string(bytes.Join(manifests, nil))
	for before := range 3 {
		encode := func(around string) string {
			return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(around, before) + csr.BlockData + strings.Repeat(around, 6)))
		}
		a, b := encode("\x00"), encode("\xff")
		first := 0
		for a[first] != b[first] {
			first++
		}
		last := first
		for last < len(a) && a[last] == b[last] {
			last++
		}
		if form := a[first:last]; !strings.Contains(policy, "'"+form+"'") {
			t.Errorf("%d bytes behind a multiple of 3 the label is %s, which the policy does not have", before, form)
		}
	}
}

// TestManifests checks that each file is cut into objects.
func TestManifests(t *testing.T) {
	for _, name := range []string{"crd/*.yaml", "rbac.yaml", "boundtokens/rbac.yaml", "clouds/rbac.yaml", "signer/rbac.yaml", "serving/rbac.yaml", "insecure/rbac.yaml", "insecure/records.yaml", "insecure/approval.yaml", "clusterapi/*.yaml", "clusterapi-signer/*.yaml", "enforce/*.yaml", "admission.yaml", "approval.yaml", "records.yaml", "observe.yaml", "operator.yaml", "config.yaml"} {
		t.Run(name, func(t *testing.T) {
			manifests, err := Manifests(name)
			if err != nil || len(manifests) == 0 {
				t.Fatalf("%s: %d, %v", name, len(manifests), err)
			}
			for i, manifest := range manifests {
				if bytes.Count(append([]byte("\n"), manifest...), []byte("\nkind: ")) != 1 {
					t.Errorf("%s %d is not one object:\n%s", name, i, manifest)
				}
			}
		})
	}
	if _, err := Manifests("none.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestImages checks that no manifest names an image that a registry could have: the node's
// runtime would run whatever a stranger has published there.
func TestImages(t *testing.T) {
	images := regexp.MustCompile(`(?m)^ *-? *image: *(.*)$`)
	found := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, image := range images.FindAllSubmatch(text, -1) {
			found++
			if host, _, _ := strings.Cut(string(image[1]), "/"); !strings.HasSuffix(host, ".invalid") {
				t.Errorf("%s: image %s, want one below .invalid (RFC 6761)", path, image[1])
			}
		}
		return err
	})
	if err != nil || found != 6 {
		t.Errorf("%d images, %v", found, err)
	}
}

// TestBaseWeakensNothing: the base has no object in common with the component enforce, and neither a
// configuration nor an inventory, which would replace a cluster's own. Argo CD and Flux do not prune
// the component's objects.
func TestBaseWeakensNothing(t *testing.T) {
	read := func(path string, into any) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var base, enforce struct{ Resources []string }
	var generators map[string]any
	read("kustomization.yaml", &base)
	read("kustomization.yaml", &generators)
	read("enforce/kustomization.yaml", &enforce)
	if _, ok := generators["configMapGenerator"]; ok {
		t.Error("the base generates ConfigMaps")
	}
	objects := func(prefix string, files []string) (found []metav1.PartialObjectMetadata) {
		t.Helper()
		for _, file := range files {
			found = append(found, partials(t, prefix+file)...)
		}
		return found
	}
	applied := map[string]bool{}
	for _, o := range objects("", base.Resources) {
		applied[o.Kind+" "+o.Name] = true
	}
	if len(applied) < 20 || applied["ConfigMap node-attestation"] {
		t.Errorf("the base applies %v", applied)
	}
	enforcing := objects("enforce/", enforce.Resources)
	for _, o := range enforcing {
		if applied[o.Kind+" "+o.Name] {
			t.Errorf("the base applies %s %s, too", o.Kind, o.Name)
		}
		if o.Annotations["argocd.argoproj.io/sync-options"] != "Prune=false" || o.Annotations["kustomize.toolkit.fluxcd.io/prune"] != "disabled" {
			t.Errorf("%s %s may be pruned: %v", o.Kind, o.Name, o.Annotations)
		}
	}
	manifests, err := Manifests("enforce/*.yaml")
	if err != nil || len(manifests) != len(enforcing) || len(enforcing) != 3 {
		t.Errorf("%d bindings, and %d in the programs, %v", len(enforcing), len(manifests), err)
	}
}
