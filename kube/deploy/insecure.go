package deploy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const insecureApproval = "insecure/approval.yaml"

// insecurePatches are the patches of the component insecure, by the names of their policies.
var insecurePatches = map[string]string{
	"node-attestation-approval": "insecure/approval-patch.yaml",
	"node-attestation-signing":  "insecure/signing-patch.yaml",
}

// insecurePolicies returns the policies on approvals and certificates with the component's patches.
func insecurePolicies() ([][]byte, error) {
	manifests, err := Manifests("approval.yaml")
	if err != nil {
		return nil, err
	}
	patched := 0
	for i, manifest := range manifests {
		object := new(unstructured.Unstructured)
		if err := yaml.Unmarshal(manifest, &object.Object); err != nil {
			return nil, fmt.Errorf("deploy: approval.yaml: %w", err)
		}
		path := insecurePatches[object.GetName()]
		if path == "" || object.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		if err := replaceVariables(object, path); err != nil {
			return nil, fmt.Errorf("deploy: %s: %w", path, err)
		}
		if manifests[i], err = yaml.Marshal(object.Object); err != nil {
			return nil, err
		}
		patched++
	}
	if patched != len(insecurePatches) {
		return nil, fmt.Errorf("deploy: %d policies to patch, want %d", patched, len(insecurePatches))
	}
	return manifests, nil
}

// replaceVariables applies a patch (RFC 6902) that only replaces expressions of variables.
func replaceVariables(object *unstructured.Unstructured, path string) error {
	text, err := files.ReadFile(path)
	if err != nil {
		return err
	}
	var patch []struct{ Op, Path, Value string }
	if err := yaml.UnmarshalStrict(text, &patch); err != nil {
		return err
	}
	variables, _, err := unstructured.NestedSlice(object.Object, "spec", "variables")
	if err != nil {
		return err
	}
	for _, p := range patch {
		var n int
		if _, err := fmt.Sscanf(p.Path, "/spec/variables/%d/expression", &n); err != nil || p.Op != "replace" || n < 0 || n >= len(variables) {
			return fmt.Errorf("%s %s: want the expression of a variable replaced", p.Op, p.Path)
		}
		variables[n].(map[string]any)["expression"] = p.Value
	}
	return unstructured.SetNestedSlice(object.Object, variables, "spec", "variables")
}
