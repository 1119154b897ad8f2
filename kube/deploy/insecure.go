package deploy

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
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
		var policy admissionv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal(manifest, &policy); err != nil {
			return nil, fmt.Errorf("deploy: approval.yaml: %w", err)
		}
		path := insecurePatches[policy.Name]
		if path == "" || policy.Kind != "ValidatingAdmissionPolicy" {
			continue
		}
		if err := replaceVariable(policy.Spec.Variables, path); err != nil {
			return nil, fmt.Errorf("deploy: %s: %w", path, err)
		}
		if manifests[i], err = yaml.Marshal(policy); err != nil {
			return nil, err
		}
		patched++
	}
	if patched != len(insecurePatches) {
		return nil, fmt.Errorf("deploy: %d policies to patch, want %d", patched, len(insecurePatches))
	}
	return manifests, nil
}

// replaceVariable applies a patch (RFC 6902) that replaces the expression of one variable.
func replaceVariable(variables []admissionv1.Variable, path string) error {
	text, err := files.ReadFile(path)
	if err != nil {
		return err
	}
	var patch []struct{ Op, Path, Value string }
	if err := yaml.UnmarshalStrict(text, &patch); err != nil {
		return err
	}
	if len(patch) != 1 {
		return fmt.Errorf("%d operations, want 1", len(patch))
	}
	for i := range variables {
		if patch[0].Op == "replace" && patch[0].Path == fmt.Sprintf("/spec/variables/%d/expression", i) {
			variables[i].Expression = patch[0].Value
			return nil
		}
	}
	return fmt.Errorf("%s %s: want the expression of a variable replaced", patch[0].Op, patch[0].Path)
}
