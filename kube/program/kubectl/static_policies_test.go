package kubectl

import (
	"bytes"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/kube/deploy"
)

// enforced returns the shipped manifests whose policies refuse, as one file.
func enforced(t testing.TB) string {
	t.Helper()
	var all [][]byte
	for _, pattern := range []string{"admission.yaml", "approval.yaml", "enforce/*.yaml", "observe.yaml", "records.yaml", "rbac.yaml"} {
		found, err := deploy.Manifests(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return string(bytes.Join(all, []byte("\n---\n")))
}

// staticOf runs the command on a file.
func staticOf(t testing.TB, file string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	p, err := newPlugin(streams{strings.NewReader(file), &out, &out}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = p.staticPolicies(t.Context(), []string{"-"})
	return out.String(), err
}

// TestStaticPolicies: each binding that denies is there with its policy, under static names and without a
// parameter, whose data is in the text.
func TestStaticPolicies(t *testing.T) {
	text, err := staticOf(t, enforced(t))
	if err != nil {
		t.Fatal(err)
	}
	var policies, bindings []string
	for document := range strings.SplitSeq(text, "\n---\n") {
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
		if yaml.UnmarshalStrict([]byte(document), &policy) == nil && policy.Kind == "ValidatingAdmissionPolicy" {
			policies = append(policies, policy.Name)
			if policy.Spec.ParamKind != nil {
				t.Errorf("%s has a parameter", policy.Name)
			}
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), &binding); err != nil {
			t.Fatal(err)
		}
		bindings = append(bindings, binding.Spec.PolicyName)
		if binding.Name != binding.Spec.PolicyName || binding.Spec.ParamRef != nil || binding.Spec.ValidationActions[0] != admissionregistrationv1.Deny {
			t.Errorf("the binding %+v", binding)
		}
	}
	const want = "node-attestation-metadata.static.k8s.io node-attestation.static.k8s.io node-attestation-approval.static.k8s.io node-attestation-signing.static.k8s.io node-attestation-records.static.k8s.io"
	if strings.Join(policies, " ") != want || strings.Join(bindings, " ") != want {
		t.Errorf("policies %v, of bindings %v, want %s", policies, bindings, want)
	}
	for _, part := range []string{`"tpm":"cluster.x-k8s.io/kubelet-attestation-challenge-tpm\ncluster.`, "variables.parameters.map(kind, variables.parameters[kind])", "name: parameters"} {
		if strings.Count(text, part) != 1 {
			t.Errorf("%d times %s in\n%s", strings.Count(text, part), part, text)
		}
	}
}

// TestStaticPoliciesRefused: manifests whose policies a file cannot have are refused by name.
func TestStaticPoliciesRefused(t *testing.T) {
	good := enforced(t)
	for name, c := range map[string]struct{ old, new, want string }{
		"observed":                  {"validationActions: [Deny]", "validationActions: [Warn]", "no ValidatingAdmissionPolicyBinding denies"},
		"another kind of parameter": {"kind: ConfigMap\n  matchConstraints", "kind: Secret\n  matchConstraints", "ValidatingAdmissionPolicy node-attestation: a static policy has no parameter, and only that of a ConfigMap"},
		"a selector":                {"    name: node-attestation-signers\n    namespace: nodeattest-system\n    parameterNotFoundAction: Deny", "    selector: {}\n    namespace: nodeattest-system", "only that of a ConfigMap"},
		"no ConfigMap":              {"metadata:\n  name: node-attestation-signers", "metadata:\n  name: others", "0 ConfigMaps nodeattest-system/node-attestation-signers"},
		"another use of it":         {"params.data.map(", "params.metadata.annotations.map(", "uses the parameter in another way than as params.data"},
		"a use in a match":          {"request.userInfo.groups.exists(g, g in ['system:nodes'", "params.data.size() > 0 && request.userInfo.groups.exists(g, g in ['system:nodes'", "in another way than as params.data"},
		"a variable of that name":   {"- name: small", "- name: parameters", "variable parameters already"},
		"no policy":                 {"kind: ValidatingAdmissionPolicy\n", "kind: MutatingAdmissionPolicy\n", "have 0 of this name"},
		"an unknown field":          {"failurePolicy: Fail", "failurePolcy: Fail", `ValidatingAdmissionPolicy node-attestation: error unmarshaling JSON: while decoding JSON: json: unknown field "failurePolcy"`},
		"a list":                    {"kind: Role\n", "kind: RoleList\n", "a list, where single objects are expected"},
		"another version":           {"apiVersion: admissionregistration.k8s.io/v1\n", "apiVersion: admissionregistration.k8s.io/v1beta1\n", `version "admissionregistration.k8s.io/v1beta1", which would be left out`},
		"a field twice":             {"failurePolicy: Fail", "failurePolicy: Fail\n  failurePolicy: Ignore", "already set in map"},
	} {
		broken := strings.ReplaceAll(good, c.old, c.new)
		if broken == good {
			t.Errorf("%s: not in the manifests: %s", name, c.old)
		}
		out, err := staticOf(t, broken)
		if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%s: %v, want %s, and no output: %q", name, err, c.want, out)
		}
	}
	if _, err := staticOf(t, good+"\n---\n"+good); err == nil || !strings.Contains(err.Error(), "have 2 of this name") {
		t.Errorf("the manifests twice: %v", err)
	}
	other := "\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: other}\nspec: {policyName: node-attestation, validationActions: [Deny]}\n"
	if _, err := staticOf(t, good+other); err == nil || !strings.Contains(err.Error(), "a static policy has one text") {
		t.Errorf("a second parameter: %v", err)
	}
}

// FuzzStaticPolicies reads files that may be anything.
func FuzzStaticPolicies(f *testing.F) {
	f.Add(enforced(f))
	f.Add("---\n# a comment\n---\nkind: List\n")
	f.Fuzz(func(t *testing.T, file string) {
		if text, err := staticOf(t, file); err == nil && (strings.Contains(text, "paramKind:") || strings.Contains(text, "paramRef:")) {
			t.Errorf("a parameter in\n%s", text)
		}
	})
}
