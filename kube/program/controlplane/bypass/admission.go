package bypass

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/refusal"
)

var policyKind = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"}

// setPolicies reads Config.Policies.
func (f *Finder) setPolicies() error {
	for _, manifest := range f.c.Policies {
		object := new(unstructured.Unstructured)
		if err := yaml.UnmarshalStrict(manifest, &object.Object); err != nil {
			return refusal.Config("Policies", refusal.Text(err.Error()), "manifests in YAML")
		}
		if gvk := object.GroupVersionKind(); gvk == policyKind || gvk == bindingKind() {
			f.policies = append(f.policies, object)
		}
	}
	if f.c.Policies != nil && len(f.policies) == 0 {
		return refusal.Config("Policies", "none", "one admission policy, or nil")
	}
	return nil
}

func bindingKind() schema.GroupVersionKind {
	kind := policyKind
	kind.Kind += "Binding"
	return kind
}

// admission finds the policies that are not in force, or are other ones.
func (f *Finder) admission(ctx context.Context) ([]Finding, error) {
	var findings []Finding
	for _, want := range f.policies {
		got := new(unstructured.Unstructured)
		got.SetGroupVersionKind(want.GroupVersionKind())
		err := f.c.Reader.Get(ctx, client.ObjectKeyFromObject(want), got)
		switch {
		case apierrors.IsNotFound(err):
			err = fmt.Errorf("%w: its %s is missing", errNotInForce, want.GetKind())
		case err != nil:
			return nil, err
		case want.GroupVersionKind() == bindingKind():
			err = checkBinding(want, got)
		case slices.Contains(f.c.Accepted, want.GetName()): // changed, as the operator knows
		default:
			err = checkPolicy(want, got)
		}
		if err != nil {
			findings = append(findings, Finding{Way: wayAdmission, Binding: want.GetName(), Reason: err.Error()})
		}
	}
	return findings, nil
}

var errNotInForce = errors.New("not in force")

// checkPolicy compares a policy with the shipped one. The defaults that the API server adds narrow
// nothing.
func checkPolicy(want, got *unstructured.Unstructured) error {
	for _, field := range []string{"failurePolicy", "paramKind", "matchConditions", "variables", "validations"} {
		if err := same(want, got, "spec", field); err != nil {
			return err
		}
	}
	for _, field := range []string{"excludeResourceRules", "namespaceSelector", "objectSelector"} {
		if value, _, _ := unstructured.NestedFieldNoCopy(got.Object, "spec", "matchConstraints", field); !blank(value) {
			return fmt.Errorf("%w: its matchConstraints have a field %s", errNotInForce, field)
		}
	}
	if policy, _, _ := unstructured.NestedString(got.Object, "spec", "matchConstraints", "matchPolicy"); policy == "Exact" {
		return fmt.Errorf("%w: its matchPolicy is Exact", errNotInForce)
	}
	rules := func(o *unstructured.Unstructured) []any {
		all, _, _ := unstructured.NestedSlice(o.Object, "spec", "matchConstraints", "resourceRules")
		for _, rule := range all {
			if fields, ok := rule.(map[string]any); ok && fields["scope"] == "*" {
				delete(fields, "scope")
			}
		}
		return all
	}
	if !reflect.DeepEqual(rules(want), rules(got)) {
		return fmt.Errorf("%w: its resourceRules differ from the shipped ones", errNotInForce)
	}
	return nil
}

// checkBinding checks that a binding has its policy refuse, everywhere.
func checkBinding(want, got *unstructured.Unstructured) error {
	if err := same(want, got, "spec", "policyName"); err != nil {
		return err
	}
	for _, field := range []string{"name", "namespace"} {
		if err := same(want, got, "spec", "paramRef", field); err != nil {
			return err
		}
	}
	if value, _, _ := unstructured.NestedFieldNoCopy(got.Object, "spec", "matchResources"); !blank(value) {
		return fmt.Errorf("%w: its binding covers only some resources", errNotInForce)
	}
	if actions, _, _ := unstructured.NestedStringSlice(got.Object, "spec", "validationActions"); !slices.Contains(actions, "Deny") {
		return fmt.Errorf("%w: its binding has the actions %s, want Deny", errNotInForce, refusal.Quotes(actions))
	}
	ref, _, _ := unstructured.NestedMap(got.Object, "spec", "paramRef")
	if action := ref["parameterNotFoundAction"]; ref != nil && action != "Deny" {
		return fmt.Errorf("%w: its binding's parameterNotFoundAction is not Deny", errNotInForce)
	}
	return nil
}

// same compares a field of two objects.
func same(want, got *unstructured.Unstructured, fields ...string) error {
	a, _, _ := unstructured.NestedFieldNoCopy(want.Object, fields...)
	b, _, _ := unstructured.NestedFieldNoCopy(got.Object, fields...)
	if blank(a) && blank(b) || reflect.DeepEqual(a, b) {
		return nil
	}
	return fmt.Errorf("%w: its %s differs from the shipped one", errNotInForce, fields[len(fields)-1])
}

// blank reports whether a value says nothing: the API server writes empty selectors.
func blank(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return value == nil
}
